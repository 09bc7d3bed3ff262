"""What Alembic runs to change the schema: in the transaction of `ncprior.campaigns.database`."""

from alembic import context

from ncprior.campaigns.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
