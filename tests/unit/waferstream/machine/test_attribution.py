"""Causes of time: waits are shared out without loss, steps must add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.timing.step_timings import timing
from waferstream.machine.attribution import Attribution, Cause, TimedSteps, waits

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


def test_samples_per_second_is_taken_over_the_whole_run() -> None:
    """Two steps of 8 samples, one second and three seconds long: 4 samples per second."""
    second = 10**12
    run = [timing(0, second, compute=second), timing(second, 4 * second, compute=3 * second)]
    assert TimedSteps.of(run).samples_per_s == 4


def test_rate_leaves_out_what_runs_between_the_steps() -> None:
    """An evaluation between two training steps does not slow the training rate down."""
    first = timing(0, 200, compute=200)
    after_a_break = timing(500, 700, compute=200)
    assert TimedSteps.of([first, after_a_break]).samples_per_s == first.samples_per_s


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1))
def test_a_mean_step_leaves_nothing_unattributed(charges: list[tuple[int, int, int]]) -> None:
    """As long as its steps on average, rounded down; each cause is off by less than a picosecond."""
    steps, start_ps = [], 0
    for compute, weights, reduce in charges:
        end_ps = start_ps + compute + weights + reduce
        steps.append(timing(start_ps, end_ps, compute=compute, weights=weights, reduce=reduce))
        start_ps = end_ps
    mean = TimedSteps.of(steps).mean_step()
    assert mean.duration_ps == start_ps // len(steps)
    assert mean.end_ps == start_ps
    total = sum(weights for _, weights, _ in charges)
    assert abs(mean.attribution.weights - total / len(steps)) < 1


def test_one_step_is_its_own_mean() -> None:
    """To the picosecond."""
    step = timing(10, 40, compute=20, weights=10)
    assert TimedSteps.of([step]).mean_step() == step


def test_no_step_has_no_rate() -> None:
    assert TimedSteps().samples_per_s == 0


def test_sums_take_the_same_memory_for_any_number_of_steps() -> None:
    """Steps can be added at any time; only the last one is kept."""
    steps = [timing(start_ps, start_ps + 5, compute=3, idle=2) for start_ps in range(0, 500, 5)]
    timed = TimedSteps.of(steps[:60])
    timed.add(steps[60:])
    both = Attribution(compute=300, idle=200)
    assert timed == TimedSteps(100, 800, both, both, steps[-1])
