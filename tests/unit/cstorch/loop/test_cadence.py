"""Steps of a loop: due or not, checked, and reduced to meet others."""

from __future__ import annotations

from typing import Any

import pytest

from cstorch.loop.cadence import checked_cadence, is_due, meeting
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


@pytest.mark.parametrize(
    ("every", "steps"),
    [(1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (0, []), ((2, 5), [2, 5]), (frozenset(), [])],
)
def test_is_due_at_multiples_or_listed_steps(every: Any, steps: Any) -> None:
    """Steps 1 to 6 are checked; 0 and an empty collection mean never."""
    assert [step for step in range(1, 7) if is_due(every, step)] == steps


def test_checked_cadence_refuses_a_small_interval() -> None:
    """The error names the argument; None means the least interval."""
    assert checked_cadence("activation_steps", None, least=1) == 1
    assert checked_cadence("checkpoint_steps", 0, least=0) == 0
    for wrong in (1.5, "3", True):
        with raises(ConfigError, "interval-not-steps"):
            checked_cadence("activation_steps", wrong, least=1)  # type: ignore[arg-type]
    with raises(ConfigError, "interval-out-of-range"):
        checked_cadence("activation_steps", 0, least=1)


def test_meeting_reduces_intervals_only() -> None:
    """Collections of steps stay unchanged."""
    assert meeting(4, 6) == 2
    assert meeting(4, (3,)) == 4
    assert meeting((4,), 3) == (4,)
