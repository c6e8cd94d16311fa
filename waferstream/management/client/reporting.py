"""What a launched run tells the management while it trains, without waiting for it."""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Any, Protocol, TypeVar

from waferstream.core.errors import WaferStreamError
from waferstream.management.client.launched import launched_client
from waferstream.management.model.event import Fact, Predicted, Progressed
from waferstream.management.model.launched import launched_workflow
from waferstream.management.model.operations import NoteFact, NoteTelemetry, Operation
from waferstream.management.model.telemetry import Telemetry
from waferstream.management.model.workflow import Prediction, Progress

log = logging.getLogger("waferstream")

Result = TypeVar("Result")

_LAST_S = 5.0
"""How long the end of the process waits for what is still to be told."""


class Asks(Protocol):
    """Whom a reporter tells."""

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation."""
        ...


class BackgroundReporter:
    """Tells of a workflow from a thread; of each kind the newest news, if it is slow.

    Args:
        client: The management.
        workflow: The workflow.
    """

    def __init__(self, client: Asks, workflow: str) -> None:
        self._client = client
        self._workflow = workflow
        self._news = threading.Condition()
        self._unsent: dict[str, Operation[Any]] = {}
        self._has_ended = False
        self._thread = threading.Thread(target=self._tell, name="reports", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def progressed(self, progress: Progress) -> None:
        """Tell how far the run is."""
        self._put_fact(Progressed(progress=progress))

    def predicted(self, prediction: Prediction) -> None:
        """Tell how long the run takes on the emulated machine."""
        self._put_fact(Predicted(prediction=prediction))

    def measured(self, telemetry: Telemetry) -> None:
        """Tell the numbers of the run and of its roles."""
        self._put(NoteTelemetry(name=self._workflow, telemetry=telemetry))

    def close(self) -> None:
        """Tell what is still to be told, within some seconds. Idempotent."""
        atexit.unregister(self.close)
        with self._news:
            self._has_ended = True
            self._news.notify()
        self._thread.join(_LAST_S)

    def _put_fact(self, fact: Fact) -> None:
        self._put(NoteFact(name=self._workflow, fact=fact), fact.kind)

    def _put(self, operation: Operation[Any], kind: str = "measured") -> None:
        with self._news:
            self._unsent[kind] = operation
            self._news.notify()

    def _tell(self) -> None:
        while operations := self._next():
            for kind, operation in operations.items():
                try:
                    self._client.do(operation)
                except (OSError, WaferStreamError) as error:
                    log.debug("The management was not told of %s: %s", kind, error)

    def _next(self) -> dict[str, Operation[Any]]:
        """Wait for news; return what was not told yet by kind, nothing at the end."""
        with self._news:
            self._news.wait_for(lambda: self._unsent or self._has_ended)
            operations, self._unsent = self._unsent, {}
            return operations


def launched_reporter() -> BackgroundReporter | None:
    """Return the way to the management that has launched this process, None without one."""
    client, workflow = launched_client(), launched_workflow()
    if client is None or workflow is None:
        return None
    return BackgroundReporter(client, workflow)
