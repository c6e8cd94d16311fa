"""Results of a step from those of its micro-batches.

    scalar     mean over the micro-batches
    samples    rows of the micro-batches one after the other: those of the global batch
    state      the value after the last micro-batch, of results that depend on the step state
    mean       mean over the micro-batches, element by element; integers and booleans in fp32

Sums run in index order, of tensors in fp64, so that they are equal for every cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from wsc.core.program import Program
from wsc.core.role import Value


def combine(
    program: Program, parts: Sequence[Sequence[Value]], of_state: Mapping[int, Value]
) -> tuple[Value, ...]:
    """Return the results of a step, by position.

    Args:
        program: The program of the step.
        parts: The results of each micro-batch, in index order.
        of_state: The results that depend on the step state, by position.
    """
    rules = {result.position: result.rule for result in program.tensor_results}
    columns = list(zip(*parts, strict=True))[: program.num_results]
    values: dict[int, Value] = {
        position: _of_tensors(column, rules[position]) if position in rules else _mean(column)
        for position, column in enumerate(columns)
    }
    values |= of_state
    return tuple(values.values())


def _mean(parts: Sequence[Value]) -> float:
    return sum(part for part in parts if isinstance(part, float)) / len(parts)


def _of_tensors(parts: Sequence[Value], rule: str) -> torch.Tensor | None:
    """Return the result from tensors, None if they did not come back."""
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if len(tensors) < len(parts):
        return None
    first, *others = tensors
    if rule == "samples":
        return torch.cat(tensors)
    total = sum((part.double() for part in others), first.double())
    return (total / len(tensors)).to(first.dtype if first.is_floating_point() else torch.float32)
