"""Attribute the time of a step to causes, and keep the emulated time of many steps as sums.

Every picosecond of a system's step has one of eight causes:

    compute    arithmetic and memory traffic of kernels
    overhead   starting segments and kernels
    straggler  extra time of a segment on the slowest of the systems that compute it, by jitter or
               because that system is slow; slow links and weight servers show as the waits below
    weights    waiting for weights that are up to date: reading in MemoryX and transfer
    activations  waiting for activations to come back from their servers, or to leave for them
    input      waiting for the micro-batch
    reduce     waiting for gradients to be summed and applied: before streamed weights are up to
               date, or before gradients that have not left the system make room for more
    idle       nothing to do: the batch has run out of micro-batches for this system

A step *ends* when its last kernel has ended and the parameters of the first segment are updated:
from then on nothing of this step delays the first kernel of the next one, and no kernel of the next
step starts before. The next step starts at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, pairwise
from typing import Literal

from waferstream.core.units import seconds

Cause = Literal[
    "compute", "overhead", "straggler", "weights", "activations", "input", "reduce", "idle"
]

CAUSES = {
    "compute": "arithmetic and memory traffic of kernels",
    "overhead": "start of segments and kernels",
    "straggler": "wait for the slowest system",
    "weights": "wait for weights",
    "activations": "wait for activations",
    "input": "wait for samples",
    "reduce": "wait for gradients to be summed and applied",
    "idle": "no micro-batch left",
}
"""Definitions of the causes, for footnotes."""

OVERHEAD_NOTE = (
    "Overhead above half of a step: a system takes about a millisecond to start each segment (a "
    "layer, forward or backward) for each micro-batch, however small. Larger micro-batches, a "
    "larger batch or larger layers use the time."
)
"""What a share of overhead above half tells, and its remedy."""


@dataclass(frozen=True)
class Attribution:
    """Picoseconds by cause."""

    compute: int = 0
    overhead: int = 0
    straggler: int = 0
    weights: int = 0
    activations: int = 0
    input: int = 0
    reduce: int = 0
    idle: int = 0

    @property
    def total_ps(self) -> int:
        """Time of all causes together."""
        return sum(vars(self).values())

    def shares(self) -> dict[str, float]:
        """Return each cause's share of the whole, 0 to 1; all 0 if no time passed."""
        total_ps = self.total_ps or 1
        return {field.name: getattr(self, field.name) / total_ps for field in fields(self)}

    def times(self, count: int) -> Attribution:
        """Return the attribution of ``count`` repetitions."""
        return Attribution(**{cause: count * ps for cause, ps in vars(self).items()})

    def plus(self, other: Attribution) -> Attribution:
        """Return the sum of two attributions."""
        others = vars(other)
        return Attribution(**{cause: ps + others[cause] for cause, ps in vars(self).items()})

    def since(self, before: Attribution) -> Attribution:
        """Return the difference to an earlier attribution of the same step."""
        earlier = vars(before)
        return Attribution(**{cause: ps - earlier[cause] for cause, ps in vars(self).items()})

    def then_idle(self, total_ps: int) -> Attribution:
        """Return the attribution with idle time added up to ``total_ps``."""
        return Attribution(**{**vars(self), "idle": self.idle + total_ps - self.total_ps})


def waits(since_ps: int, until: Sequence[tuple[Cause, int]]) -> Iterator[tuple[Cause, int]]:
    """Divide the time from ``since_ps`` to the last of several ends among their causes.

    Each cause is charged the time by which it outlasts the causes that ended before it, so a charge
    is the most that would be gained without that cause:

        since      end of input        end of weights
        |--- input ----|---- weights ------|
    """
    late = [wait for wait in until if wait[1] > since_ps]
    for cause, end_ps in sorted(late, key=lambda wait: wait[1]):
        if end_ps > since_ps:
            yield cause, end_ps - since_ps
            since_ps = end_ps


@dataclass(frozen=True)
class StepTiming:
    """Emulated time of one step.

    ``attribution`` holds for the systems that have a micro-batch in every round, which determine
    the length of the step; ``spare`` for the systems without one in the last round.
    ``backward_ps`` is the backward pass of the last round, ``update_ps`` the time from its last
    kernel to the end of the step.
    """

    step: int
    start_ps: int
    end_ps: int
    batch_size: int
    num_busy: int  # systems with a micro-batch in the last round
    attribution: Attribution
    spare: Attribution
    backward_ps: int = 0
    update_ps: int = 0

    def __post_init__(self) -> None:
        for attribution in (self.attribution, self.spare):
            if attribution.total_ps != self.duration_ps:
                raise ValueError(
                    f"attribution of step {self.step} must sum to {self.duration_ps} ps; "
                    f"got {attribution.total_ps}"
                )

    @property
    def duration_ps(self) -> int:
        """Length of the step."""
        return self.end_ps - self.start_ps

    @property
    def samples_per_s(self) -> float:
        """Samples per emulated second."""
        return self.batch_size / seconds(self.duration_ps)


@dataclass
class TimedSteps:
    """Sums over steps, which need not be consecutive; memory does not grow with their number.

    Attributes:
        num_steps: Number of steps.
        num_samples: Samples of all steps together.
        attribution: Time of all steps by cause, of the systems that are always busy.
        spare: The same of the systems without a micro-batch in the last round.
        last: The step that was added last.
    """

    num_steps: int = 0
    num_samples: int = 0
    attribution: Attribution = field(default_factory=Attribution)
    spare: Attribution = field(default_factory=Attribution)
    last: StepTiming | None = None

    @classmethod
    def of(cls, timings: Iterable[StepTiming]) -> TimedSteps:
        """Return the sums over some steps."""
        timed = cls()
        timed.add(timings)
        return timed

    def add(self, timings: Iterable[StepTiming]) -> None:
        """Add steps."""
        for timing in timings:
            self.num_steps += 1
            self.num_samples += timing.batch_size
            self.attribution = self.attribution.plus(timing.attribution)
            self.spare = self.spare.plus(timing.spare)
            self.last = timing

    @property
    def samples_per_s(self) -> float:
        """Samples per emulated second, without time between steps; 0 without a step."""
        if not self.num_steps:
            return 0.0
        return self.num_samples / seconds(self.attribution.total_ps)

    def mean_step(self) -> StepTiming:
        """Return the mean of one or more steps, with the end and the number of the last of them.

        Means are rounded to whole picoseconds so that the causes still sum to the whole.
        """
        assert self.last is not None, "a mean needs a step"
        attribution, spare = self._mean(self.attribution), self._mean(self.spare)
        start_ps = self.last.end_ps - attribution.total_ps
        return replace(self.last, start_ps=start_ps, attribution=attribution, spare=spare)

    def _mean(self, sums: Attribution) -> Attribution:
        ends = [total_ps // self.num_steps for total_ps in accumulate(vars(sums).values())]
        return Attribution(*(end_ps - before_ps for before_ps, end_ps in pairwise([0, *ends])))
