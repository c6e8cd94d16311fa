"""Changes of the tables since the first release, which alembic makes in order.

The folder is an environment of alembic: ``env.py`` runs one upgrade, ``versions`` has its steps.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Bring the tables up to date, within a transaction of the connection."""
    command.upgrade(configuration(connection), "head")


def configuration(connection: Connection) -> Config:
    """Return what alembic needs to know of these steps."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
