"""What a measurement says: a table to read, and plain data to keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from benchmarks.streaming.measure import Spread, Turn, seconds_per_step, speed_ratio
from benchmarks.streaming.workload import Workload

BASELINES = ("plain", "ddp2")
"""What the other arms are compared with, where it was measured."""

_COLUMN = "  {:>22}"


@dataclass(frozen=True)
class Comparison:
    """All turns of one workload."""

    workload: Workload
    turns: tuple[Turn, ...]

    @cached_property
    def seconds(self) -> dict[str, list[float]]:
        """Seconds per step of each arm, by repetition."""
        return seconds_per_step(self.turns)

    @property
    def baselines(self) -> list[str]:
        """The baselines that were measured."""
        return [name for name in BASELINES if name in self.seconds]

    def samples_per_s(self, arm: str) -> float:
        """Median over repetitions."""
        return self.workload.batch_size / Spread.of(self.seconds[arm]).median

    def ratio(self, arm: str, baseline: str) -> Spread:
        """Speed of an arm over that of a baseline."""
        return speed_ratio(self.seconds[arm], self.seconds[baseline])

    def table(self) -> str:
        """One line per arm."""
        return "\n".join(self._lines())

    def as_json(self) -> dict[str, Any]:
        """Raw turns, and what the table shows."""
        return {
            "workload": asdict(self.workload),
            "micro_batch_size": self.workload.micro_batch_size,
            "turns": [asdict(turn) for turn in self.turns],
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
        against = "".join(_COLUMN.format(f"over {name} (range)") for name in self.baselines)
        yield f"{'arm':<8}{'samples/s':>10}{'tokens/s':>10}{against}"
        for arm in self.seconds:
            rate = self.samples_per_s(arm)
            ratios = "".join(self._cell(arm, baseline) for baseline in self.baselines)
            yield f"{arm:<8}{rate:>10.3f}{rate * workload.sequence_length:>10.1f}{ratios}"

    def _cell(self, arm: str, baseline: str) -> str:
        ratio = self.ratio(arm, baseline)
        return _COLUMN.format(f"{ratio.median:.3f} ({ratio.min:.3f}-{ratio.max:.3f})")

    def _summary(self, arm: str) -> dict[str, Any]:
        rate = self.samples_per_s(arm)
        return {
            "samples_per_s": rate,
            "tokens_per_s": rate * self.workload.sequence_length,
            **{f"over_{name}": asdict(self.ratio(arm, name)) for name in self.baselines},
        }


def progress(turn: Turn) -> str:
    """A line while it is measured."""
    return (
        f"repetition {turn.repetition + 1}: {turn.arm:<8} {turn.seconds / turn.steps:8.3f} s/step"
    )
