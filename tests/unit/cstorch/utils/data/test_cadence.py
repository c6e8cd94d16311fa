"""Every so many steps, or the steps that are named."""

import pytest

from cstorch.utils.data.cadence import checked_cadence, is_due, meeting
from wsc.core.errors import ConfigError


@pytest.mark.parametrize(
    ("every", "steps"),
    [(1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (0, []), ((2, 5), [2, 5]), (frozenset(), [])],
)
def test_a_step_is_due_at_every_multiple_or_when_it_is_named(every, steps):
    """Of the steps 1 to 6; 0 and no steps at all mean never."""
    assert [step for step in range(1, 7) if is_due(every, step)] == steps


def test_an_interval_below_the_least_is_refused():
    """The error names the argument; nothing asked for means the least."""
    assert checked_cadence("activation_steps", None, least=1) == 1
    assert checked_cadence("checkpoint_steps", 0, least=0) == 0
    with pytest.raises(ConfigError, match="activation_steps is out of range"):
        checked_cadence("activation_steps", 0, least=1)


def test_named_steps_are_not_reduced():
    """Only two intervals have a common divisor to be reduced to."""
    assert meeting(4, 6) == 2
    assert meeting(4, (3,)) == 4
    assert meeting((4,), 3) == (4,)
