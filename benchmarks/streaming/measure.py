"""Comparing arms on a host that is never quite quiet: take turns, then compare neighbours.

One repetition runs every arm once. What disturbs the host for longer than a turn disturbs
neighbours alike and cancels in their ratio, though not in either rate; so ratios are taken pair by
pair within a repetition, and only then summed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol


class Runner(Protocol):
    """Something that trains."""

    def run(self, steps: int) -> float:
        """Train ``steps`` steps and return the seconds that they took."""


@dataclass(frozen=True)
class Turn:
    """One measurement: ``steps`` steps of one arm took ``seconds``."""

    repetition: int
    arm: str
    steps: int
    seconds: float


@dataclass(frozen=True)
class Spread:
    """The middle and the extremes of a few values."""

    median: float
    min: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Raises ValueError if there is none."""
        return Spread(median(values), min(values), max(values))


def take_turns(arms: Mapping[str, Runner], repeats: int, steps: int) -> Iterator[Turn]:
    """A B C, A B C, ...: every arm once per repetition, never two at a time."""
    for repetition in range(repeats):
        for name, arm in arms.items():
            yield Turn(repetition, name, steps, arm.run(steps))


def seconds_per_step(turns: Sequence[Turn]) -> dict[str, list[float]]:
    """For each arm, in order of appearance, what a step took in each repetition."""
    table: dict[str, list[float]] = {}
    for turn in turns:
        table.setdefault(turn.arm, []).append(turn.seconds / turn.steps)
    return table


def speed_ratio(arm: Sequence[float], baseline: Sequence[float]) -> Spread:
    """How much faster an arm is than a baseline (1.1 is 10 % faster), from seconds per step."""
    return Spread.of([base / own for own, base in zip(arm, baseline, strict=True)])
