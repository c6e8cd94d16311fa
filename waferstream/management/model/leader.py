"""Who decides for a store that several processes write to."""

from __future__ import annotations

from waferstream.core.config import Record
from waferstream.management.model.workflow import Process


class Leader(Record):
    """A management, and when it has last said that it leads its store."""

    process: Process
    time_s: float
