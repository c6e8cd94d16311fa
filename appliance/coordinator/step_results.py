"""Results of a step from those of its micro-batches, and the checks of what is finished.

    scalar     mean over the micro-batches
    samples    rows of the micro-batches one after the other: those of the global batch
    norms      computed once per step, of results that depend on norms from MemoryX
    state      the value after the last micro-batch, of results that depend on the step state
    mean       mean over the micro-batches, element by element; integers and booleans in fp32

Scalars are weighed already. Tensors that are means count by their samples, where micro-batches have
more and less of them.
Sums run in index order, of tensors in fp64, so that they are equal for every cluster. Results,
weights and gradients must be finite, unless a loss scale can help.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from waferstream.core.errors import ConfigError, NotFiniteStepError
from waferstream.core.messages.watch import TensorNorms, first_of
from waferstream.core.optimizer import LossScale
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.roles.role import Report, Value
from waferstream.machine.attribution import StepTiming


@dataclass(frozen=True)
class StepResult:
    """One finished step.

    ``values`` are the results of the step, those of its micro-batches combined in
    index order; tensors come back for the last step of a job only. ``gradient_norm`` is the global
    norm before clipping, None without clipping; ``loss_scale`` is that of the next step, None if it
    is fixed. ``tensor_norms`` are the norms by parameter, in master order, where they are watched.
    ``timing`` is that of the emulated machine, None on CPU and GPU, where nothing is emulated.
    ``stragglers`` are the systems that have been slow for a few steps, if they are looked for.
    ``link_waits`` of the last step of a job has the seconds of the job for which a role has waited
    for messages on their way between two hosts, by link.
    """

    step: int
    values: tuple[Value, ...]
    gradient_norm: float | None
    timing: StepTiming | None
    loss_scale: LossScale | None = None
    tensor_norms: Mapping[str, TensorNorms] = field(default_factory=dict)
    stragglers: tuple[str, ...] = ()
    link_waits: Mapping[str, float] = field(default_factory=dict)

    @property
    def was_skipped(self) -> bool:
        """Whether a gradient overflowed, so that the weights stayed as they were."""
        return self.loss_scale is not None and self.loss_scale.has_overflowed

    def scalar(self, position: int = 0) -> float:
        """Return one of the results, NaN if it is no number."""
        value = self.values[position] if self.values else None
        return value if isinstance(value, float) else math.nan


def combine(
    program: Program, parts: Sequence[Sequence[Value]], of_coordinator: Mapping[int, Value]
) -> tuple[Value, ...]:
    """Return the results of a step, by position.

    Args:
        program: The program of the step.
        parts: The results of each micro-batch, in index order.
        of_coordinator: The results that depend on the step state or on norms, by position.
    """
    rules = {result.position: result.rule for result in program.tensor_results}
    columns = list(zip(*parts, strict=True))[: program.num_results]
    values: dict[int, Value] = {
        position: _of_tensors(column, rules[position], program.weights_of(position))
        if position in rules
        else _mean(column)
        for position, column in enumerate(columns)
    }
    values |= of_coordinator
    return tuple(values.values())


def guarded(program: Program, parts: Sequence[Sequence[Value]]) -> list[float]:
    """Return the losses of the batch that ops of the program keep within limits."""
    return [_mean([part[place] for part in parts]) for place in program.guarded]


def _mean(parts: Sequence[Value]) -> float:
    return sum(part for part in parts if isinstance(part, float)) / len(parts)


def _of_tensors(parts: Sequence[Value], rule: str, weights: Sequence[float]) -> torch.Tensor | None:
    """Return the result from tensors, None if they did not come back."""
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if len(tensors) < len(parts):
        return None
    if rule == "samples":
        return torch.cat(tensors)
    first, *others = (part.double() * weight for part, weight in zip(tensors, weights, strict=True))
    total = sum(others, first)
    dtype = tensors[0].dtype
    return (total / len(tensors)).to(dtype if dtype.is_floating_point else torch.float32)


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
