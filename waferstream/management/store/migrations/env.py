"""What alembic runs for each of its commands: the steps, over the connection that it was given."""

from alembic import context

from waferstream.management.store import tables

context.configure(
    connection=context.config.attributes["connection"], target_metadata=tables.metadata
)
context.run_migrations()
