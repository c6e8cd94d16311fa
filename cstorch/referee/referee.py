"""The check of ``cstorch.Trainer``: its first steps beside plain loops on copies of the model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.compile import model_of
from cstorch.current import current_backend
from cstorch.referee.origin import (
    Origin,
    beyond_recording,
    first_difference,
    op_of,
    ops_of_recording,
)
from cstorch.referee.plain_loop import Training
from cstorch.referee.report import Report
from cstorch.referee.rounds import Rounds, rounds_of
from cstorch.referee.values import StepValues, copy_of
from cstorch.referee.verdict import Verdict, judge, require_repeatable
from cstorch.trace import TracedStep
from cstorch.tracing.step_value import StepValue
from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.dataloader import DataLoader
from wsc.core.program.micro_batches import Cut

log = logging.getLogger("waferstream")

NUM_ROUNDED = 3
"""Plain loops with random rounding."""


class Referee:
    """Watches the first steps of a training, and judges them.

    Args:
        training: What is trained, before anything is changed by training it.
        steps: How many steps to watch.
    """

    def __init__(self, training: Training, steps: int) -> None:
        self._training = training.copy()
        self._steps = steps
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
        model = model_of(current_backend())
        state = copy_of(model.state_dict())  # first, as it runs the step
        self._found.append(StepValues(loss.item(), state))
        if len(self._found) == self._steps or executor.on_final_iteration:
            self._judge(step, executor.dataloader)

    def _judge(self, step: TracedStep, dataloader: DataLoader) -> None:
        """Compare the steps that were watched, and log the report."""
        batches = [dataloader.batch(index)[0] for index in range(len(self._found))]
        rounds = rounds_of(current_backend())
        verdicts = self._verdicts(batches, rounds)
        worst = next((each for each in verdicts if each.outcome == "different"), None)
        origin = None if worst is None else self._origin(worst, step, batches, rounds)
        self.report = Report(verdicts, rounds, origin)
        for line in self.report.lines():
            log.info("%s", line)
        self.report.require_alike()

    def _verdicts(self, batches: Sequence[Any], rounds: Rounds) -> tuple[Verdict, ...]:
        """Return the comparison of each step with those of plain loops."""
        plain = self._values(batches, rounds)
        require_repeatable(plain, self._values(batches, rounds))
        rounded = [self._values(batches, rounds, seed) for seed in range(NUM_ROUNDED)]
        return tuple(
            judge(step, found, expected, moved)
            for step, (found, expected, *moved) in enumerate(
                zip(self._found, plain, *rounded, strict=True), start=1
            )
        )

    def _origin(
        self, verdict: Verdict, step: TracedStep, batches: Sequence[Any], rounds: Rounds
    ) -> Origin:
        """Return from where on a step differs."""
        training, number = self._training.copy(), verdict.step
        list(training.steps(batches[: number - 1], rounds))
        batch = batches[number - 1]
        alone = replace(rounds, cut=Cut(rounds.cut.size, 1))
        first = pytree.tree_map_only(torch.Tensor, lambda x: x[: alone.cut.size], batch)
        tensors = [x for x in pytree.tree_leaves(first) if isinstance(x, torch.Tensor)]
        masters = dict(training.model.named_parameters())
        captured = step.recorded_at(alone.cut.size)
        recorded = ops_of_recording(captured, masters, tensors, alone, number)
        op = first_difference(training.copy().ops(first, alone, number), recorded)
        return op_of(op) if op else beyond_recording(verdict, training.line_of_loss(first))

    def _values(
        self, batches: Sequence[Any], rounds: Rounds, rounding: int | None = None
    ) -> list[StepValues]:
        """Return the values of a plain loop of a copy of its own."""
        return list(self._training.copy().steps(batches, rounds, rounding))
