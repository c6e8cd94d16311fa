"""Compare arms on a host that is never quite idle: run trials alternately, compare neighbours.

One repetition runs a trial of every arm:

    repetition 1   plain | csx1 | ddp2
    repetition 2   plain | csx1 | ddp2

Other work on the host that lasts longer than a trial slows neighbouring trials alike. It cancels in
their ratio, though not in either rate. Ratios are therefore taken within a repetition, and only
then summarised over repetitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, Protocol

from benchmarks.streaming.workload import Layout, Workload

BASELINES = (
    *("best", "compiled", "mixed", "plain", "ddp2", "ddp2mixed", "fsdp2", "fsdp2mixed", "zero2"),
    "csx1c1",
)
"""Arms with which the others are compared, where they were measured."""

_COLUMN = "  {:>22}"


class Runner(Protocol):
    """Something that trains."""

    def run(self, steps: int) -> float:
        """Train ``steps`` steps and return the seconds that they took."""


@dataclass(frozen=True)
class Trial:
    """One measurement: ``steps`` steps of one arm took ``seconds``."""

    repetition: int
    arm: str
    steps: int
    seconds: float

    @property
    def progress(self) -> str:
        """Line to print while the measurement goes on."""
        per_step = self.seconds / self.steps
        return f"repetition {self.repetition + 1}: {self.arm:<8} {per_step:8.3f} s/step"


@dataclass(frozen=True)
class Spread:
    """Median and extremes of a few values."""

    median: float
    min: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Return the spread of at least one value; ValueError if there is none."""
        return Spread(median(values), min(values), max(values))


def run_trials(arms: Mapping[str, Runner], repeats: int, steps: int) -> Iterator[Trial]:
    """Run every arm once per repetition, never two at a time: A B C, A B C, ..."""
    for repetition in range(repeats):
        for name, arm in arms.items():
            yield Trial(repetition, name, steps, arm.run(steps))


def seconds_per_step(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Return the seconds of a step in each repetition by arm, in order of appearance."""
    table: dict[str, list[float]] = {}
    for trial in trials:
        table.setdefault(trial.arm, []).append(trial.seconds / trial.steps)
    return table


def speed_ratio(arm: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Return the speed of an arm over a baseline from seconds per step; 1.1 is 10 % faster."""
    return Spread.of([base / own for own, base in zip(arm, baseline, strict=True)])


@dataclass(frozen=True)
class Comparison:
    """All trials of one workload."""

    workload: Workload
    trials: tuple[Trial, ...]
    layouts: Mapping[Layout, float] = field(default_factory=dict)
    """Seconds per step of the loop in memory by layout, as they were measured first."""

    @cached_property
    def seconds(self) -> dict[str, list[float]]:
        """Seconds per step of each arm, by repetition."""
        return seconds_per_step(self.trials)

    @property
    def baselines(self) -> list[str]:
        """Baselines that were measured."""
        return [name for name in BASELINES if name in self.seconds]

    def samples_per_s(self, arm: str) -> float:
        """Return the throughput of an arm at its median over repetitions."""
        return self.workload.batch_size / Spread.of(self.seconds[arm]).median

    def ratio(self, arm: str, baseline: str) -> Spread:
        """Return the speed of an arm over that of a baseline."""
        return speed_ratio(self.seconds[arm], self.seconds[baseline])

    def table(self) -> str:
        """Return a table with one line per arm."""
        return "\n".join(self._lines())

    def as_json(self) -> dict[str, Any]:
        """Return all trials and the values of the table."""
        return {
            "workload": asdict(self.workload),
            "micro_batch_size": self.workload.micro_batch_size,
            "trials": [asdict(trial) for trial in self.trials],
            "layouts": [{**asdict(layout), "seconds": s} for layout, s in self.layouts.items()],
            "arms": {arm: self._summary(arm) for arm in self.seconds},
        }

    def _lines(self) -> Iterator[str]:
        workload = self.workload
        micro_batches = workload.batch_size // workload.micro_batch_size
        yield (
            f"batch {workload.batch_size} = {micro_batches} x micro-batch "
            f"{workload.micro_batch_size}, {workload.sequence_length} tokens per sample, "
            f"{workload.precision}"
        )
        if self.layouts:
            yield f"best in memory: {min(self.layouts, key=lambda each: self.layouts[each])}"
        against = "".join(_COLUMN.format(f"over {name} (range)") for name in self.baselines)
        yield f"{'arm':<8}{'samples/s':>10}{'tokens/s':>10}{against}"
        for arm in self.seconds:
            rate = self.samples_per_s(arm)
            ratios = "".join(self._ratio_text(arm, baseline) for baseline in self.baselines)
            yield f"{arm:<8}{rate:>10.3f}{rate * workload.sequence_length:>10.1f}{ratios}"

    def _ratio_text(self, arm: str, baseline: str) -> str:
        ratio = self.ratio(arm, baseline)
        return _COLUMN.format(f"{ratio.median:.3f} ({ratio.min:.3f}-{ratio.max:.3f})")

    def _summary(self, arm: str) -> dict[str, Any]:
        rate = self.samples_per_s(arm)
        return {
            "samples_per_s": rate,
            "tokens_per_s": rate * self.workload.sequence_length,
            **{f"over_{name}": asdict(self.ratio(arm, name)) for name in self.baselines},
        }
