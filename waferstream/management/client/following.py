"""A submitted workflow from its user's side: what it prints, its files, and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from waferstream.core.errors import WaferStreamError
from waferstream.management.client.client import Client
from waferstream.management.client.mirror import Mirror
from waferstream.management.model import event
from waferstream.management.model.operations import Beat, ListFiles, ReadWorkflow
from waferstream.management.model.workflow import Workflow

log = logging.getLogger("waferstream")

BEAT_S = 10.0
"""Between two signs of life of a client (section 4.2 of the vendor's: every 10 s)."""

COPY_S = 3.0
"""Between two looks at the files of a run."""


def follow(remote: Client, name: str, mirror: Mirror | None, out: IO[bytes]) -> Workflow:
    """Show what a workflow prints until it has ended, and copy its files meanwhile.

    Args:
        remote: The management.
        name: The workflow.
        mirror: Where its files go; None copies none.
        out: What its run prints.

    Returns:
        The workflow as it has ended.
    """
    with repeating(BEAT_S, lambda: remote.do(Beat(name=name))):
        with repeating(COPY_S, lambda: _copy(remote, name, mirror)):
            for part in remote.follow(name):
                if isinstance(part, bytes):
                    out.write(part)
                    out.flush()
                elif isinstance(part.fact, event.Waits):
                    log.info("Waiting in the queue: %s", part.fact.reason)
        _copy(remote, name, mirror)
    return remote.do(ReadWorkflow(name=name))


def _copy(remote: Client, name: str, mirror: Mirror | None) -> None:
    if mirror is not None:
        mirror.update(remote.do(ListFiles(name=name)))


@contextmanager
def repeating(interval_s: float, act: Callable[[], object]) -> Iterator[None]:
    """Act at intervals in a thread while the block runs; failures are logged, and tried again."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(interval_s):
            try:
                act()
            except (OSError, WaferStreamError) as error:
                log.debug("%s", error)

    thread = threading.Thread(target=repeat, name="repeating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(interval_s)
