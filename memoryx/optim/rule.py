"""What an optimizer rule is: the state it keeps per parameter, and one update in place.

A rule holds nothing itself. Weight servers own masters and state (flat fp32 buffers, of which the
tensors here are views) and hand both to ``update`` once per step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Shape = tuple[int, ...]
Hyper = Mapping[str, Any]
"""Hyper-parameters by name; always complete, as ``ParamGroup.at`` gives them."""

State = dict[str, Tensor]
"""The fp32 state tensors of one parameter by name; zeros before the first update."""

STATE_BYTES_PER_ELEMENT = 4


class Parameter(NamedTuple):
    """One parameter at its update: tensors in fp32 on the CPU, the gradient like the master."""

    master: Tensor
    gradient: Tensor
    state: State


class Rule(Protocol):
    """How gradients change masters."""

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        """Names and shapes of the state kept for a parameter of shape ``shape``."""

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        """Apply one update to masters and states in place; gradients are only read.

        ``step`` counts from 1 the updates that this state has seen, this one included. Parameters
        do not mix: the result for each is the same in any company and order.
        """


def init_state(rule: Rule, shape: Shape, hyper: Hyper) -> State:
    """State before the first update: zeros."""
    return {name: torch.zeros(size) for name, size in rule.state_shapes(shape, hyper).items()}


def state_bytes(rule: Rule, shape: Shape, hyper: Hyper) -> int:
    """Bytes of state that a rule keeps for one parameter."""
    elements = sum(prod(size) for size in rule.state_shapes(shape, hyper).values())
    return elements * STATE_BYTES_PER_ELEMENT
