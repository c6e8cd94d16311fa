"""What a run does about steps that are not finite: skip them, or go back and leave out the batch.

    stage      |------------------------------------|
    step 7 is not finite; the newest checkpoint is of step 4:
    parts           |-- 5, 6 --|-- 7 to the end ----|      with one batch left out between them

The steps that run again have the bits that they had: nothing but the left-out batch differs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from appliance.coordinator.step_results import StepResult
from waferstream.config.sections.callbacks import NotFiniteSteps
from waferstream.core.errors import ApplianceNanError, NotFiniteStepError
from waferstream.training.run_plan import Stage

log = logging.getLogger("waferstream")


class Part(NamedTuple):
    """Steps of a stage, and the batches to leave out before the first of them."""

    stage: Stage
    batches_left_out: int


class NotFiniteRule:
    """The rule of a run, and how often it was applied.

    Args:
        policy: What the user has configured.
        is_scale_dynamic: Whether the loss scale itself skips steps, which is no event then.
    """

    def __init__(self, policy: NotFiniteSteps, is_scale_dynamic: bool) -> None:
        self._policy = policy
        self._takes_skips = policy.action != "stop" and not is_scale_dynamic
        self._left_out: Counter[int] = Counter()  # batches, by the step that reads the next one
        self.num_steps = 0
        """Steps that were skipped or rolled back."""

    @property
    def rolls_back(self) -> bool:
        """Whether a step that is not finite leads back to a checkpoint."""
        return self._policy.action == "roll_back"

    def take(self, results: Sequence[StepResult]) -> None:
        """Take the results of new steps.

        Raises:
            NotFiniteStepError: A step was skipped, and the run is to roll back.
            ApplianceNanError: More steps were skipped than allowed.
        """
        for result in results:
            if not (self._takes_skips and result.was_skipped):
                continue
            if self.rolls_back:
                raise NotFiniteStepError(
                    f"a gradient of step {result.step} is not finite",
                    step=result.step,
                    code="gradient-not-finite",
                )
            self._count(f"a gradient of step {result.step} is not finite")
            log.warning(
                "Step %d is skipped: a gradient is not finite (%d of at most %d)",
                result.step, self.num_steps, self._policy.max_times,
            )  # fmt: skip

    def leave_out(self, error: NotFiniteStepError) -> None:
        """Leave out the batch of a step that is not finite from now on; ``error`` says which.

        Raises:
            ApplianceNanError: More steps were rolled back than allowed.
        """
        self._count(error.what)
        self._left_out[error.step] += 1

    def parts(self, first: int, stage: Stage) -> list[Part]:
        """Return the parts of a stage from a step on; each begins where a batch is left out."""
        starts = sorted({first, *(step for step in self._left_out if first < step <= stage.last)})
        ends = [*(start - 1 for start in starts[1:]), stage.last]
        return [
            Part(Stage(start, end, stage.evaluates), self._left_out[start])
            for start, end in zip(starts, ends, strict=True)
        ]

    def _count(self, what: str) -> None:
        self.num_steps += 1
        if self.num_steps > self._policy.max_times:
            raise ApplianceNanError(
                what,
                code="too-many-steps-not-finite",
                where="NotFiniteSteps",
                rule=f"at most {self._policy.max_times} steps of a run (max_times)",
                remedy="lower the learning rate, clip gradients, or check the data",
            )
