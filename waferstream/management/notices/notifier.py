"""The notifier: tells users about events of their workflows, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from waferstream.core.errors import WaferStreamError
from waferstream.host.files import replacing
from waferstream.management.model.event import Event
from waferstream.management.model.workflow import Workflow
from waferstream.management.notices.notice import notice_of
from waferstream.management.notices.sender import Sender
from waferstream.management.store.store import Store

log = logging.getLogger("waferstream")

LOOK_S = 1.0
"""Between two looks at the events."""

OLDEST_S = 3600.0
"""Nobody is told what has happened longer ago, while the management was away."""


class Notifier:
    """Sends a notice for each event that is worth one, once, also over a restart.

    Args:
        store: The events.
        sender: Sends notices.
        place: The file with the number of the last event that was looked at.
    """

    def __init__(self, store: Store, sender: Sender, place: Path) -> None:
        self._store, self._sender, self._place = store, sender, place
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self) -> None:
        """Begin to look at events."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, after the notice that it is sending. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                self.turn()
            except (OSError, WaferStreamError) as error:
                log.warning("Notices are late: %s", error)

    def turn(self) -> None:
        """Tell what has happened since the last turn."""
        newest, after = self._store.newest_event(), self._looked_at()
        if after is None:
            self._keep(newest)
        elif after < newest:
            self._look(after)

    def _look(self, after: int) -> None:
        """Look at the next events."""
        with self._store.reading() as views:
            events = views.events(after=after)
            workflows = {each.workflow: views.workflow(each.workflow) for each in events}
        for event in events:
            workflow = workflows[event.workflow]
            if workflow is not None and time.time() - event.time_s < OLDEST_S:
                self._tell(workflow, event)
        self._keep(events[-1].number)

    def _tell(self, workflow: Workflow, event: Event) -> None:
        """Tell all that want to know of an event, if it is worth it."""
        notice = notice_of(workflow, event.fact)
        if notice is None:
            return
        self._keep(event.number)
        for target in workflow.submission.notifications:
            if notice.severity <= target.severity_threshold:
                for failure in self._sender.send(notice, target):
                    log.warning("A notice of %s was not sent: %s", workflow.name, failure)

    def _looked_at(self) -> int | None:
        """Return the number of the last event that was looked at."""
        try:
            return int(self._place.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _keep(self, number: int) -> None:
        with replacing(self._place) as partial:
            partial.write_text(f"{number}")
