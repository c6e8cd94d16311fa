"""Which events users are told about."""

from __future__ import annotations

import pytest

from waferstream.management.model.event import Asked, Ended, Fact, JobMoved, Released, Waits
from waferstream.management.model.job import Phase
from waferstream.management.model.notification import Severity
from waferstream.management.model.workflow import Progress, Submission, Workflow
from waferstream.management.notices.notice import notice_of

WORKFLOW = Workflow(
    name="wflow-1",
    user="ann",
    submission=Submission(words=("fit", "params.yaml")),
    submitted_s=0.0,
    progress=Progress(step=1200, total_steps=5000),
)


@pytest.mark.parametrize(
    ("fact", "severity"),
    [
        (Ended(result=Phase.FAILED, message="out of memory"), Severity.FAILURE),
        (Released(reason="its process was lost", is_lost=True), Severity.PAUSE),
        (Asked(aim="pause"), Severity.PAUSE),
        (Ended(result=Phase.SUCCEEDED), Severity.END),
        (Ended(result=Phase.CANCELLED), Severity.END),
    ],
)
def test_ends_and_pauses_are_told(fact: Fact, severity: Severity) -> None:
    notice = notice_of(WORKFLOW, fact)
    assert notice is not None
    assert notice.severity is severity
    assert "wflow-1" in notice.title
    assert "step 1,200 of 5,000" in notice.text


@pytest.mark.parametrize(
    "fact",
    [
        Waits(reason="no systems"),
        Asked(aim="resize"),
        Released(),
        JobMoved(job="wsjob-1", phase=Phase.FAILED),
    ],
)
def test_others_are_not(fact: Fact) -> None:
    assert notice_of(WORKFLOW, fact) is None


def test_message_of_a_failure_is_told() -> None:
    notice = notice_of(WORKFLOW, Ended(result=Phase.FAILED, message="out of memory"))
    assert notice is not None
    assert notice.text.startswith("out of memory\n")
