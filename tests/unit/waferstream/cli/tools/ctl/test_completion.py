"""A shell completes verbs, flags, values and names of jobs."""

from __future__ import annotations

import pytest

from tests.support.host.tools import tool
from tests.support.management.embedded import Runs


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ct"], ["ctl"]),
        (["ctl", "get", "jo"], ["jobs", "job"]),
        (["ctl", "get", "jobs", "--wat"], ["--watch"]),
        (["ctl", "job", "set-priority", "x", "p1"], ["p1"]),
        (["ctl", "get", "job", "x", "--output", "y"], ["yaml"]),
        (["fit", ""], []),
    ],
)
def test_words_are_completed(
    words: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool(capsys, "ctl", "completion", "--words", *words).split() == found


def test_names_of_jobs_are_completed(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    workflow = runs.submit()
    name = runs.start(workflow)
    assert tool(capsys, "ctl", "completion", "--words", "ctl", "cancel", "ws").split() == [name]
    said = tool(capsys, "ctl", "completion", "--words", "ctl", "explain", "wf").split()
    assert said == [workflow.name]
    assert "complete -o default" in tool(capsys, "ctl", "completion")
