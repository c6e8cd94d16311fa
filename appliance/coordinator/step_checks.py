"""Checks of finished steps: results, weights and gradients are finite, loss scales can help."""

from __future__ import annotations

import math
from collections.abc import Sequence

from appliance.coordinator.step_results import StepResult
from waferstream.core.errors import ConfigError, NotFiniteStepError
from waferstream.core.messages.watch import first_of
from waferstream.core.optimizer.loss_scale import LossScale
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Report, Value


def check_skipped(loss_scale: LossScale, first_step: int) -> None:
    """Raise ConfigError if more steps were skipped than there are before ``first_step``."""
    if loss_scale.num_skipped_steps >= first_step:
        raise ConfigError(
            "the loss scale must belong to the training that it continues",
            code="loss-scale-of-another-run",
            where="GradScaler",
            value=f"{loss_scale.num_skipped_steps} skipped steps before step {first_step}",
            rule="at most all steps before have been skipped",
            remedy="restore global_step with the loss scale, or neither of them",
        )


def check_findings(reports: Sequence[Report], results: Sequence[StepResult]) -> None:
    """Raise for the first value that was found not finite, but for those of skipped steps."""
    skipped = {result.step for result in results if result.was_skipped}
    findings = (f for report in reports for f in report.findings if f.step not in skipped)
    if (first := first_of(findings)) is not None:
        raise first.error()


def check_result(result: StepResult, kind: ProgramKind) -> None:
    """Raise unless a step was useful; one that was skipped is, as long as a smaller scale helps."""
    if result.was_skipped:
        check_scale(result.loss_scale, result.step)
    else:
        check_values(result.values, kind, result.step)


def check_values(values: Sequence[Value], kind: ProgramKind, step: int) -> None:
    """Raise NotFiniteStepError unless the scalar results of a step are finite."""
    scalars = [value for value in values if isinstance(value, float)]
    if not all(map(math.isfinite, scalars)):
        raise NotFiniteStepError(
            f"the {kind} loss of step {step} is not finite",
            step=step,
            code="loss-not-finite",
            value=", ".join(map(str, scalars)),
            rule="losses are finite numbers",
            remedy="lower the learning rate, clip gradients (precision.max_gradient_norm), or "
            "check the data; then continue from a checkpoint of an earlier step",
        )


def check_scale(loss_scale: LossScale | None, step: int) -> None:
    """Raise NotFiniteStepError if a smaller loss scale, which could help, is not allowed."""
    if loss_scale is not None and loss_scale.is_exhausted:
        raise NotFiniteStepError(
            f"gradients of step {step} overflow at the smallest loss scale",
            step=step,
            code="loss-scale-exhausted",
            where="GradScaler",
            value=f"min_loss_scale {loss_scale.scale}",
            rule="a smaller loss scale makes gradients finite",
            remedy="check the data and the learning rate; then continue from a checkpoint of an "
            "earlier step",
        )
