"""The emulated time of many steps, kept as sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from waferstream.core.units import seconds
from waferstream.machine.attribution import Attribution, StepTiming


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
