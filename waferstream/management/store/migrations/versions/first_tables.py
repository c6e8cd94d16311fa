"""The tables of the first release with a management."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, Text

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make events, the views that follow from them, users and tokens."""
    _make_events()
    _make_workflows()
    _make_users()


def _make_events() -> None:
    op.create_table(
        "events",
        Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("time_s", Double, nullable=False),
        Column("workflow", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("body", Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("events_of_workflow", "events", ["workflow", "kind", "number"])


def _make_workflows() -> None:
    op.create_table(
        "workflows",
        Column("name", Text, primary_key=True),
        Column("user", Text, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("submitted_s", Double, nullable=False),
        Column("ended_s", Double),
        Column("body", Text, nullable=False),
    )
    op.create_index("workflows_in_order", "workflows", ["ended_s", "priority", "submitted_s"])
    op.create_table(
        "jobs",
        Column("name", Text, primary_key=True),
        Column("workflow", Text, nullable=False, index=True),
    )
    op.create_table(
        "beats",
        Column("workflow", Text, primary_key=True),
        Column("who", Text, primary_key=True),
        Column("time_s", Double, nullable=False),
    )


def _make_users() -> None:
    for name in ("settings", "sessions", "users"):
        op.create_table(
            name, Column("name", Text, primary_key=True), Column("body", Text, nullable=False)
        )
    op.create_table(
        "tokens",
        Column("digest", Text, primary_key=True),
        Column("user", Text, nullable=False, index=True),
        Column("created_s", Double, nullable=False),
        Column("revoked_s", Double),
    )
