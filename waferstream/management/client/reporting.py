"""What a launched run tells the management while it trains, without waiting for it."""

from __future__ import annotations

import atexit
import logging
import threading

from waferstream.core.errors import WaferStreamError
from waferstream.management.client.client import Client
from waferstream.management.client.launched import launched_client
from waferstream.management.model.event import Fact, Predicted, Progressed
from waferstream.management.model.launched import launched_workflow
from waferstream.management.model.operations import NoteFact
from waferstream.management.model.telemetry import Telemetry
from waferstream.management.model.workflow import Prediction, Progress

log = logging.getLogger("waferstream")

_LAST_S = 5.0
"""How long the end of the process waits for what is still to be told."""


class BackgroundReporter:
    """Notes facts of a workflow from a thread; of each kind the newest one, if it is slow.

    Args:
        client: The management.
        workflow: The workflow.
    """

    def __init__(self, client: Client, workflow: str) -> None:
        self._client = client
        self._workflow = workflow
        self._news = threading.Condition()
        self._untold: dict[str, Fact] = {}
        self._has_ended = False
        self._thread = threading.Thread(target=self._tell, name="reports", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def progressed(self, progress: Progress) -> None:
        """Tell how far the run is."""
        self._put(Progressed(progress=progress))

    def predicted(self, prediction: Prediction) -> None:
        """Tell how long the run takes on the emulated machine."""
        self._put(Predicted(prediction=prediction))

    def measured(self, telemetry: Telemetry) -> None:
        """Do nothing: the management keeps no numbers of roles yet."""

    def close(self) -> None:
        """Tell what is still to be told, within some seconds. Idempotent."""
        atexit.unregister(self.close)
        with self._news:
            self._has_ended = True
            self._news.notify()
        self._thread.join(_LAST_S)

    def _put(self, fact: Fact) -> None:
        with self._news:
            self._untold[fact.kind] = fact
            self._news.notify()

    def _tell(self) -> None:
        while facts := self._next():
            for fact in facts:
                try:
                    self._client.do(NoteFact(name=self._workflow, fact=fact))
                except (OSError, WaferStreamError) as error:
                    log.debug("The management was not told of %s: %s", fact.kind, error)

    def _next(self) -> list[Fact]:
        """Wait for facts; return those that were not told yet, none at the end."""
        with self._news:
            self._news.wait_for(lambda: self._untold or self._has_ended)
            facts = list(self._untold.values())
            self._untold.clear()
            return facts


def launched_reporter() -> BackgroundReporter | None:
    """Return the way to the management that has launched this process, None without one."""
    client, workflow = launched_client(), launched_workflow()
    if client is None or workflow is None:
        return None
    return BackgroundReporter(client, workflow)
