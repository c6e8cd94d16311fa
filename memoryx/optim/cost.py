"""What one update costs per element: bytes of state to move, operations to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from memoryx.optim.registry import rule_named, state_bytes_per_element
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import TensorSpec

FLOPS_PER_ELEMENT: Mapping[str, int] = {
    "SGD": 7,
    "Adam": 15,
    "AdamW": 15,
    "Lion": 9,
    "Adafactor": 17,
    "Lamb": 21,
}
"""Additions, multiplications, divisions, roots and signs per element, counted in the formulas that
each rule's class names, all options on; factors that are the same for all elements are not counted.
"""


class UpdateCost(NamedTuple):
    """Per trained element, on average over the model."""

    state_bytes: int
    flops: int


NO_UPDATE = UpdateCost(state_bytes=0, flops=0)


def update_cost(
    optimizer: OptimizerSpec | None, parameters: Mapping[str, TensorSpec]
) -> UpdateCost:
    """What the update of a step costs; ConfigError if MemoryX has no such rule."""
    if optimizer is None:
        return NO_UPDATE
    rule_named(optimizer.rule)
    return UpdateCost(
        state_bytes_per_element(optimizer, parameters), FLOPS_PER_ELEMENT[optimizer.rule]
    )


def clips_by_norm(optimizer: OptimizerSpec | None) -> bool:
    """Whether every update waits for the global gradient norm, which takes all gradients."""
    return optimizer is not None and optimizer.max_gradient_norm is not None
