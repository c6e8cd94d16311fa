"""The check of ``cstorch.Trainer``: its first steps beside plain loops on copies of the model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from cstorch.cluster.config import current_witness
from cstorch.current import current_session
from cstorch.recording.step_value import StepValue
from cstorch.referee.origin import Origin, first_micro_batch, origin_of, run_recording
from cstorch.referee.plain_loop import Training
from cstorch.referee.report import Report
from cstorch.referee.rounds import Rounds, rounds_of
from cstorch.referee.verdict import Verdict, first_different, judge_all
from cstorch.session.session import model_of
from cstorch.trace import TracedStep
from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.dataloader import DataLoader
from cstorch.witness import StepsDone, StepValues, copy_of

log = logging.getLogger("waferstream")


class Referee:
    """Watches the first steps of a training, and judges them.

    Args:
        training: What is trained, before anything is changed by training it.
        steps: How many steps to watch.
    """

    def __init__(self, training: Training, steps: int) -> None:
        self._training = training.copy()
        self._witness = current_witness()
        self._steps = steps
        if self._witness is not None:
            self._witness.is_by_trainer = True
        self._found: list[StepValues] = []
        self.report: Report | None = None
        """What it has found; None until the steps are done."""

    def note(self, loss: StepValue, step: TracedStep, executor: DataExecutor) -> None:
        """Watch the step of an iteration, if it is one of the first; judge after the last of them.

        Raises:
            CheckError: A step is different from the plain loop's.
        """
        if self.report is not None:
            return
        model = model_of(current_session())
        state = copy_of(model.state_dict())  # first, as it runs the step
        self._found.append(StepValues(loss.item(), state))
        if len(self._found) == self._steps or executor.on_final_iteration:
            self._judge(step, executor.dataloader)

    def _judge(self, step: TracedStep, dataloader: DataLoader) -> None:
        """Compare the steps that were watched, and log the report."""
        batches = [dataloader.batch(index)[0] for index in range(len(self._found))]
        rounds = rounds_of(current_session())

        def values_of(rounding: int | None) -> list[StepValues]:
            return list(self._training.copy().steps(batches, rounds, rounding))

        verdicts = judge_all(self._found, values_of)
        worst = first_different(verdicts)
        origin = None if worst is None else self._origin(worst, step, batches, rounds)
        self.report = Report(verdicts, rounds, origin)
        if self._witness is not None:
            self._witness.report = self.report
            raise StepsDone
        for line in self.report.lines():
            log.info("%s", line)
        self.report.require_alike()

    def _origin(
        self, verdict: Verdict, step: TracedStep, batches: Sequence[Any], rounds: Rounds
    ) -> Origin:
        """Return from where on a step differs."""
        training, number = self._training.copy(), verdict.step
        list(training.steps(batches[: number - 1], rounds))
        first, alone = first_micro_batch(batches[number - 1], rounds)
        masters = copy_of(training.model.state_dict())
        captured = step.recorded_at(alone.cut.size)
        recorded = run_recording(captured, masters, first, alone, number)
        return origin_of(verdict, training.pass_on(first, alone, number), recorded)
