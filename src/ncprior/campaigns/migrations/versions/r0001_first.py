"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes all tables."""
    op.create_table(
        "campaign",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("pool_digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("drawn", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
        sa.UniqueConstraint("name", name=op.f("uq_campaign_name")),
    )
    op.create_table(
        "model_file",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_model_file")),
    )
    op.create_table(
        "person",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person")),
        sa.UniqueConstraint("name", name=op.f("uq_person_name")),
    )
    op.create_table(
        "item",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign", sa.Integer(), nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("in_pool", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_item_campaign")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_item")),
        sa.UniqueConstraint("campaign", "row_key", name=op.f("uq_item_campaign")),
    )
    op.create_index("ix_item_state", "item", ["campaign", "state"], unique=False)
    op.create_table(
        "model",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign", sa.Integer(), nullable=False),
        sa.Column("labels_through", sa.Integer(), nullable=False),
        sa.Column("labels", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_model_campaign")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
    )
    op.create_index(
        "one_worker",
        "model",
        ["campaign"],
        unique=True,
        sqlite_where=sa.text("state = 'training'"),
        postgresql_where=sa.text("state = 'training'"),
    )
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign", sa.Integer(), nullable=False),
        sa.Column("item", sa.Integer(), nullable=False),
        sa.Column("person", sa.Integer(), nullable=False),
        sa.Column("model", sa.Integer(), nullable=True),
        sa.Column("audit", sa.Boolean(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("unseen", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_lease_campaign")),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name=op.f("fk_lease_item")),
        sa.ForeignKeyConstraint(["model"], ["model.id"], name=op.f("fk_lease_model")),
        sa.ForeignKeyConstraint(["person"], ["person.id"], name=op.f("fk_lease_person")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease")),
    )
    op.create_index("ix_lease_item", "lease", ["item"], unique=False)
    op.create_index(
        "one_holder",
        "lease",
        ["item"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_index(
        "open_leases",
        "lease",
        ["campaign", "expires_at"],
        unique=False,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_index(
        "unseen_leases",
        "lease",
        ["person"],
        unique=False,
        sqlite_where=sa.text("unseen"),
        postgresql_where=sa.text("unseen"),
    )
    op.create_table(
        "prediction",
        sa.Column("model", sa.Integer(), nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["model.id"], name=op.f("fk_prediction_model")),
        sa.PrimaryKeyConstraint("model", "row_key", name=op.f("pk_prediction")),
    )
    op.create_table(
        "queue",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign", sa.Integer(), nullable=False),
        sa.Column("model", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("taken", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_queue_campaign")),
        sa.ForeignKeyConstraint(["model"], ["model.id"], name=op.f("fk_queue_model")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue")),
    )
    op.create_index("ix_queue_rank", "queue", ["campaign", "kind", "taken", "rank"], unique=False)
    op.create_index("ix_queue_row", "queue", ["campaign", "row_key"], unique=False)
    op.create_table(
        "label",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("campaign", sa.Integer(), nullable=False),
        sa.Column("item", sa.Integer(), nullable=False),
        sa.Column("person", sa.Integer(), nullable=False),
        sa.Column("lease", sa.Integer(), nullable=True),
        sa.Column("model", sa.Integer(), nullable=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("supersedes", sa.Integer(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_label_campaign")),
        sa.ForeignKeyConstraint(["item"], ["item.id"], name=op.f("fk_label_item")),
        sa.ForeignKeyConstraint(["lease"], ["lease.id"], name=op.f("fk_label_lease")),
        sa.ForeignKeyConstraint(["model"], ["model.id"], name=op.f("fk_label_model")),
        sa.ForeignKeyConstraint(["person"], ["person.id"], name=op.f("fk_label_person")),
        sa.ForeignKeyConstraint(["supersedes"], ["label.id"], name=op.f("fk_label_supersedes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_label")),
        sa.UniqueConstraint("campaign", "idempotency_key", "target", name=op.f("uq_label_campaign")),
        sa.UniqueConstraint("supersedes", name=op.f("uq_label_supersedes")),
    )
    op.create_index("ix_label_item", "label", ["item", "target"], unique=False)


def downgrade() -> None:
    """Removes all tables."""
    for name in ("label", "queue", "prediction", "lease", "model", "item", "person", "model_file", "campaign"):
        op.drop_table(name)
