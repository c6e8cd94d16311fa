"""Interleaving and ratios: what makes two arms comparable on a host that is never quiet."""

import pytest

from benchmarks.streaming.measure import Spread, Turn, seconds_per_step, speed_ratio, take_turns


class Fake:
    """An arm whose k-th turn takes the k-th of the given times; it notes when it runs."""

    def __init__(self, name, seconds, log):
        self._name, self._seconds, self._log = name, iter(seconds), log

    def run(self, steps):
        self._log.append((self._name, steps))
        return next(self._seconds)


def test_arms_take_turns_within_every_repetition():
    """A B A B, never A A B B: neighbours in time are what is compared."""
    log = []
    arms = {"a": Fake("a", [1.0, 2.0], log), "b": Fake("b", [3.0, 4.0], log)}
    turns = list(take_turns(arms, repeats=2, steps=5))
    assert log == [("a", 5), ("b", 5), ("a", 5), ("b", 5)]
    assert [(turn.repetition, turn.arm, turn.seconds) for turn in turns] == [
        (0, "a", 1.0),
        (0, "b", 3.0),
        (1, "a", 2.0),
        (1, "b", 4.0),
    ]


def test_an_arm_runs_only_when_its_turn_is_asked_for():
    """Turns are reported while the measurement goes on, so nothing may run ahead."""
    log = []
    turns = take_turns({"a": Fake("a", [1.0, 1.0], log)}, repeats=2, steps=1)
    assert log == []
    next(turns)
    assert log == [("a", 1)]


def test_seconds_are_those_of_one_step():
    """A turn of several steps counts by its mean step, arms in the order of their first turn."""
    turns = [Turn(0, "b", 4, 2.0), Turn(0, "a", 4, 8.0), Turn(1, "b", 4, 4.0)]
    assert seconds_per_step(turns) == {"b": [0.5, 1.0], "a": [2.0]}
    assert list(seconds_per_step(turns)) == ["b", "a"]


def test_ratios_are_taken_before_they_are_summed_up():
    """A disturbance that slows both arms of a repetition leaves the ratio alone."""
    quiet, disturbed = 1.0, 10.0
    arm = [0.5 * quiet, 0.5 * disturbed, 0.5 * quiet]
    baseline = [1.0 * quiet, 1.0 * disturbed, 2.0 * quiet]
    assert speed_ratio(arm, baseline) == Spread(median=2.0, min=2.0, max=4.0)


def test_a_ratio_needs_equally_many_repetitions():
    """A pair without its other half is an error, not a shorter list."""
    with pytest.raises(ValueError, match="longer"):
        speed_ratio([1.0], [1.0, 2.0])
