"""What another process has answered is what this one would, and the server can do without it."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.support.errors import raises
from tests.support.runs.explored import tiny_explorer
from waferstream.core.errors import ConfigError
from waferstream.explorer.ahead import Ahead
from waferstream.explorer.explorer import Explorer

CAPTURE = "waferstream.explorer.steps.capture_any_depth"
DEEP = {"layers": 7}


@pytest.fixture
def explorer() -> Explorer:
    """An explorer that has captured nothing."""
    known = tiny_explorer()
    return Explorer(known.params, known.cluster, known.files)


@pytest.fixture
def ahead(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    """A process in which the step is captured at once; it goes on with another fan-out."""
    tiny_explorer().answer(DEEP)
    (step, *_) = tiny_explorer()._steps.any_depth.values()
    monkeypatch.setattr(Explorer, "moves_from", lambda _, place: iter([{**place, "fan_out": 3}]))
    with patch(CAPTURE, return_value=step):
        ahead = Ahead(explorer, lambda: None)
    yield ahead
    ahead.close()


def test_another_process_captures_what_a_question_takes(ahead: Ahead, explorer: Explorer) -> None:
    assert not explorer.is_captured(DEEP)
    with patch(CAPTURE, side_effect=AssertionError("captured by the server")):
        ahead.move_to(DEEP)
        assert explorer.answer(DEEP) == tiny_explorer().answer(DEEP)
        assert explorer.is_captured({"layers": 9})
        assert explorer.answer({"layers": 9}) == tiny_explorer().answer({"layers": 9})


def test_moves_from_a_place_are_answered_unasked(ahead: Ahead, explorer: Explorer) -> None:
    ahead.move_to({"clock": 10**9})
    moved = {"clock": 10**9, "fan_out": 3}
    with ahead._changed:
        assert ahead._changed.wait_for(lambda: explorer.items(moved) in ahead._tried, timeout=60)
    with patch.object(explorer, "_answer", side_effect=AssertionError("answered by the server")):
        assert explorer.answer(moved) == tiny_explorer().answer(moved)


def test_nonsense_is_not_waited_for(ahead: Ahead) -> None:
    with raises(ConfigError, "fan-out-exceeds-ports"):
        ahead.move_to(DEEP | {"fan_out": 8})


def test_nothing_is_waited_for_where_the_process_has_ended(
    ahead: Ahead, explorer: Explorer
) -> None:
    ahead._process.kill()
    ahead._learning.join()
    ahead.move_to(DEEP)
    assert not explorer.is_captured(DEEP)
