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

from collections.abc import Mapping, Sequence

import torch

from wsc.core.program import Program
from wsc.core.role import Value


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
