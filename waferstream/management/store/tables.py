"""The tables of a store: events, the views that follow from them, and who may ask.

A change of these tables needs a migration, and the number of that as ``VERSION``.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text

VERSION = "0001"
"""The newest migration."""

metadata = MetaData()

versions = Table("alembic_version", MetaData(), Column("version_num", Text, primary_key=True))
"""The version of a store, in the table that alembic writes."""

events = Table(
    "events",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("time_s", Double, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("events_of_workflow", "workflow", "kind", "number"),
    sqlite_autoincrement=True,
)

workflows = Table(
    "workflows",
    metadata,
    Column("name", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("submitted_s", Double, nullable=False),
    Column("ended_s", Double),
    Column("body", Text, nullable=False),
    Index("workflows_in_order", "ended_s", "priority", "submitted_s"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("workflow", Text, nullable=False, index=True),
)

beats = Table(
    "beats",
    metadata,
    Column("workflow", Text, primary_key=True),
    Column("who", Text, primary_key=True),
    Column("time_s", Double, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)
"""What there is one of: the inventory, and the leader."""

sessions = Table(
    "sessions",
    metadata,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("user", Text, nullable=False, index=True),
    Column("created_s", Double, nullable=False),
    Column("revoked_s", Double),
)
