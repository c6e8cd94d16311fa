"""A launched run tells the management without waiting for it."""

import threading
from dataclasses import dataclass, field
from typing import Any

from waferstream.core.errors import ApplianceServiceInterrupted
from waferstream.management.client.reporting import BackgroundReporter, launched_reporter
from waferstream.management.model.event import Predicted, Progressed
from waferstream.management.model.operations import NoteFact
from waferstream.management.model.workflow import Prediction, Progress


@dataclass
class SlowClient:
    """A management that answers nothing before it may, and its first question with an error."""

    may_answer: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    noted: list[Any] = field(default_factory=list)

    def do(self, operation: Any) -> Any:
        assert isinstance(operation, NoteFact)
        self.asked.set()
        self.may_answer.wait(10)
        self.noted.append(operation.fact)
        if len(self.noted) == 1:
            raise ApplianceServiceInterrupted("it is away", code="management-unreachable")

    def close(self) -> None: ...


def test_slow_management_gets_the_newest_progress() -> None:
    """Nothing waits for it, its errors end nothing, and what is newest is told at the end."""
    client = SlowClient()
    reporter = BackgroundReporter(client, "wflow-1")
    reporter.progressed(Progress(step=1, total_steps=9))
    assert client.asked.wait(10)
    for step in range(2, 6):
        reporter.progressed(Progress(step=step, total_steps=9))
    prediction = Prediction(seconds={1: 2.0})
    reporter.predicted(prediction)
    client.may_answer.set()
    reporter.close()
    first, *others = client.noted
    assert first == Progressed(progress=Progress(step=1, total_steps=9))
    newest = Progressed(progress=Progress(step=5, total_steps=9))
    assert others == [newest, Predicted(prediction=prediction)]


def test_nobody_is_told_without_a_management() -> None:
    """A run that its user has started costs nothing."""
    assert launched_reporter() is None
