"""Cells of the lists of jobs."""

from __future__ import annotations

import time

import pytest

from waferstream.cli.tools.ctl.tables import duration, expected_start, folded
from waferstream.management.model.operations import Explanation


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (200, "3m20s"), (3600, "1h0m"), (90_000, "1d1h")],
)
def test_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_names_are_folded_into_ranges() -> None:
    names = [f"system-{index}" for index in (8, 0, 10, 2, 1)]
    assert folded(names) == "system-[0-2,8,10]"
    assert folded(["system-3"]) == "system-3"
    assert folded(["a1", "b1", "b2"]) == "a1,b[1-2]"
    assert folded(["left", "right"]) == "left,right"
    assert folded(["n08", "n09", "n10"]) == "n[08-10]"


def test_expected_start_has_its_interval() -> None:
    now = time.time()
    found = Explanation(workflow="w", reason="", place=1, start_s=now)
    assert expected_start(found).count(":") == 2
    sure = found.model_copy(update={"earliest_s": now - 1, "latest_s": now + 1})
    assert " to " in expected_start(sure)
    assert expected_start(found.model_copy(update={"start_s": None})) == ""
