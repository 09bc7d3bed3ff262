"""Changes of the database's schema, in order, which Alembic runs."""
