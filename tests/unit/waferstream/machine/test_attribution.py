"""Causes of time: waits are shared out without loss, steps must add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.timing.step_timings import timing
from waferstream.machine.attribution import Attribution, Cause, waits

ends = st.lists(
    st.tuples(st.sampled_from(["weights", "input", "reduce"]), st.integers(0, 1000)), max_size=6
)


def test_each_cause_is_charged_by_how_much_it_outlasts_the_others() -> None:
    """Weights until 30 and input until 100, from 10 on: 20 of weights, 70 of input."""
    shares = waits(10, [("input", 100), ("weights", 30), ("reduce", 5)])
    assert list(shares) == [("weights", 20), ("input", 70)]


@given(st.integers(0, 1000), ends)
def test_waits_add_up_to_the_time_until_the_last_end(
    since_ps: int, until: list[tuple[Cause, int]]
) -> None:
    """No picosecond is charged twice or lost."""
    charged = [duration for _, duration in waits(since_ps, until)]
    last_ps = max((end for _, end in until), default=0)
    assert sum(charged) == max(0, last_ps - since_ps)
    assert all(duration > 0 for duration in charged)


def test_step_timing_refuses_an_attribution_that_does_not_sum() -> None:
    """The sum over causes is the step time, to the picosecond."""
    assert timing(10, 40, compute=20, weights=10).duration_ps == 30
    with pytest.raises(ValueError, match=r"30 ps.* 29$"):
        timing(10, 40, compute=20, weights=9)


def test_finished_system_is_idle_for_the_rest() -> None:
    """The rest of the step is idle time."""
    rested = Attribution(compute=20, idle=5).then_idle(100)
    assert rested == Attribution(compute=20, idle=80)


def test_shares_sum_to_one_and_are_zero_when_no_time_passes() -> None:
    """Shares are parts of the whole."""
    assert Attribution(compute=1, input=3).shares()["input"] == 0.75
    assert set(Attribution().shares().values()) == {0}
