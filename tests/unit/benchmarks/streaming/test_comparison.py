"""Trials alternate between arms, and ratios are taken within a repetition."""

from __future__ import annotations

import json

import pytest

from benchmarks.streaming.comparison import (
    Comparison,
    Spread,
    Trial,
    run_trials,
    seconds_per_step,
    speed_ratio,
)
from benchmarks.streaming.workload import Workload

WORKLOAD = Workload(
    hidden=64,
    layers=1,
    vocab=64,
    sequence_length=100,
    batch_size=16,
    precision="bf16-stream",
    cores=2,
)
Log = list[tuple[str, int]]


class _Arm:
    """Arm whose trials take given seconds; it logs its runs."""

    def __init__(self, name: str, seconds: list[float], log: Log) -> None:
        self._name, self._seconds, self._log = name, iter(seconds), log

    def run(self, steps: int) -> float:
        self._log.append((self._name, steps))
        return next(self._seconds)


def _comparison(**seconds: list[float]) -> Comparison:
    """Return a comparison with one trial of two steps per repetition and arm."""
    trials = [
        Trial(repetition, arm, 2, 2 * step)
        for arm, steps in seconds.items()
        for repetition, step in enumerate(steps)
    ]
    return Comparison(WORKLOAD, tuple(trials))


def test_run_trials_alternates_between_arms() -> None:
    """A B A B, never A A B B: neighbours in time are compared."""
    log: Log = []
    arms = {"a": _Arm("a", [1.0, 2.0], log), "b": _Arm("b", [3.0, 4.0], log)}
    trials = list(run_trials(arms, repeats=2, steps=5))
    assert log == [("a", 5), ("b", 5), ("a", 5), ("b", 5)]
    assert [(trial.repetition, trial.arm, trial.seconds) for trial in trials] == [
        (0, "a", 1.0),
        (0, "b", 3.0),
        (1, "a", 2.0),
        (1, "b", 4.0),
    ]


def test_run_trials_is_lazy() -> None:
    """Trials are reported while the measurement goes on, so none runs in advance."""
    log: Log = []
    trials = run_trials({"a": _Arm("a", [1.0, 1.0], log)}, repeats=2, steps=1)
    assert log == []
    next(trials)
    assert log == [("a", 1)]


def test_seconds_per_step_keeps_the_order_of_arms() -> None:
    """A trial of several steps counts with its mean step."""
    trials = [Trial(0, "b", 4, 2.0), Trial(0, "a", 4, 8.0), Trial(1, "b", 4, 4.0)]
    assert seconds_per_step(trials) == {"b": [0.5, 1.0], "a": [2.0]}
    assert list(seconds_per_step(trials)) == ["b", "a"]


def test_speed_ratio_is_taken_within_repetitions() -> None:
    """A disturbance that slows both arms of a repetition does not change the ratio."""
    quiet, disturbed = 1.0, 10.0
    arm = [0.5 * quiet, 0.5 * disturbed, 0.5 * quiet]
    baseline = [1.0 * quiet, 1.0 * disturbed, 2.0 * quiet]
    assert speed_ratio(arm, baseline) == Spread(median=2.0, min=2.0, max=4.0)


def test_speed_ratio_needs_equally_many_repetitions() -> None:
    """A pair without its other half is an error, not a shorter list."""
    with pytest.raises(ValueError, match="longer"):
        speed_ratio([1.0], [1.0, 2.0])


def test_comparison_has_median_rates_and_speed_ratios() -> None:
    """16 samples in 2 s are 8 per second; half the seconds is twice the speed."""
    measured = _comparison(plain=[2.0, 2.0, 4.0], csx1=[1.0, 2.0, 2.0])
    assert measured.samples_per_s("csx1") == 8.0
    assert measured.ratio("csx1", "plain") == Spread(median=2.0, min=1.0, max=2.0)


def test_table_has_a_column_for_each_measured_baseline() -> None:
    """One line per arm; baselines that were not measured have no column."""
    lines = _comparison(plain=[2.0], csx1=[1.0]).table().splitlines()
    assert "over plain" in lines[1]
    assert "over ddp2" not in lines[1]
    assert lines[3].split() == ["csx1", "16.000", "1600.0", "2.000", "(2.000-2.000)"]


def test_json_holds_every_trial() -> None:
    """Results can be analysed again without measuring again."""
    data = json.loads(json.dumps(_comparison(plain=[2.0], csx1=[1.0], ddp2=[4.0]).as_json()))
    assert data["trials"][1] == {"repetition": 0, "arm": "csx1", "steps": 2, "seconds": 2.0}
    assert data["workload"]["batch_size"] == 16
    assert data["arms"]["csx1"]["tokens_per_s"] == pytest.approx(1600)
    assert data["arms"]["csx1"]["over_ddp2"] == {"median": 4.0, "min": 4.0, "max": 4.0}
