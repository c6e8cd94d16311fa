"""Cost of an update per element: bytes of state to move, operations to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import NamedTuple

from memoryx.optim.rule import Hyper, Shape, rule_named, state_bytes
from waferstream.core.optimizer import FLOPS_OF_AVERAGE, OptimizerSpec
from waferstream.core.program.program import MASTER_BYTES, TensorSpec


class UpdateCost(NamedTuple):
    """Cost per trained element, on average over the model."""

    state_bytes: int
    flops: int


NO_UPDATE = UpdateCost(state_bytes=0, flops=0)


def update_cost(
    optimizer: OptimizerSpec | None, parameters: Mapping[str, TensorSpec]
) -> UpdateCost:
    """Return the cost of a step's update; ConfigError if MemoryX has no such rule.

    A moving average of a weight is read and written with its source, as a state is.
    """
    if optimizer is None:
        return NO_UPDATE
    rule = rule_named(optimizer.rule)
    trained = sum(
        parameters[name].num_elements for group in optimizer.groups for name in group.names
    )
    averaged = sum(parameters[each.source].num_elements for each in optimizer.averages)
    share = averaged / max(1, trained)
    return UpdateCost(
        state_bytes_per_element(optimizer, parameters) + ceil(MASTER_BYTES * share),
        _mean(optimizer, parameters, rule.flops) + ceil(FLOPS_OF_AVERAGE * share),
    )


def state_bytes_per_element(
    optimizer: OptimizerSpec | None, parameters: Mapping[str, TensorSpec]
) -> int:
    """Return the bytes of state per trained element, averaged over the model and rounded up."""
    if optimizer is None:
        return 0
    return _mean(optimizer, parameters, partial(state_bytes, rule_named(optimizer.rule)))


def _mean(
    optimizer: OptimizerSpec,
    parameters: Mapping[str, TensorSpec],
    cost: Callable[[Shape, Hyper], int],
) -> int:
    """Return the cost of all trained parameters per element, rounded up."""
    pairs = [(parameters[name], group) for group in optimizer.groups for name in group.names]
    total = sum(cost(spec.shape, group.hyper) for spec, group in pairs)
    return -(-total // max(1, sum(spec.num_elements for spec, _ in pairs)))


def waits_for_all(optimizer: OptimizerSpec | None) -> bool:
    """Return whether every update waits for the gradients of all parameters."""
    return optimizer is not None and optimizer.waits_for_all
