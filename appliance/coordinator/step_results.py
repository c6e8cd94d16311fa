"""Results of a step from those of its micro-batches.

    scalar     mean over the micro-batches
    samples    rows of the micro-batches one after the other: those of the global batch
    norms      computed once per step, of results that depend on norms from MemoryX
    state      the value after the last micro-batch, of results that depend on the step state
    mean       mean over the micro-batches, element by element; integers and booleans in fp32

Scalars are weighed already. Tensors that are means count by their samples, where micro-batches have
more and less of them.
Sums run in index order, of tensors in fp64, so that they are equal for every cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from waferstream.core.messages.watch import TensorNorms
from waferstream.core.optimizer.loss_scale import LossScale
from waferstream.core.program.program import Program
from waferstream.core.roles.role import Value
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
