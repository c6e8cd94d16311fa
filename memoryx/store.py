"""The weight store of one server: fp32 masters and optimizer state, in flat buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from memoryx.optim.rule import Parameter, State, init_state, rule_named
from wsc.core.optimizer import OptimizerSpec
from wsc.core.packing import unpack
from wsc.core.program import TensorSpec


class WeightStore:
    """Masters of the parameters that one server owns.

    All masters lie in one flat fp32 buffer, in the order of ``parameters``; ``masters`` are views
    of it. ``states`` holds the optimizer's tensors of every parameter that is trained.
    """

    def __init__(self, parameters: Sequence[TensorSpec]) -> None:
        self._flat = torch.zeros(sum(spec.num_elements for spec in parameters))
        self.masters: dict[str, torch.Tensor] = dict(
            zip((spec.name for spec in parameters), unpack(self._flat, parameters), strict=True)
        )
        self.states: dict[str, State] = {}
        self._optimizer: OptimizerSpec | None = None

    @property
    def has_optimizer(self) -> bool:
        """Whether it is known how the parameters are trained."""
        return self._optimizer is not None

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Allocate the optimizer's state, all zeros, for every parameter that it trains here.

        The same optimizer again keeps its state.
        """
        if optimizer == self._optimizer:
            return
        self._optimizer = optimizer
        self._rule = rule_named(optimizer.rule)
        self.states = {
            name: init_state(self._rule, tuple(self.masters[name].shape), group.hyper)
            for group in optimizer.groups
            for name in group.names
            if name in self.masters
        }

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite masters with initial values."""
        for name, value in values.items():
            self.masters[name].copy_(value)

    def update(self, gradients: Mapping[str, torch.Tensor], step: int) -> None:
        """Apply the optimizer's rule to some parameters, in place, for step ``step`` (from 1)."""
        assert self._optimizer is not None, "an evaluation program has no gradients"
        for group in self._optimizer.groups:
            parameters = [
                Parameter(self.masters[name], gradients[name], self.states[name])
                for name in group.names
                if name in gradients
            ]
            if parameters:
                self._rule.update(parameters, group.at(step), step)
