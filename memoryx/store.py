"""The weight store of one server: fp32 masters and optimizer state, in flat buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from memoryx.optim.registry import rule_named
from memoryx.optim.rule import State, init_state
from wsc.core.errors import CheckpointError
from wsc.core.optimizer import OptimizerSpec
from wsc.core.packing import unpack
from wsc.core.program import TensorSpec


class WeightStore:
    """Masters of the parameters that one server owns.

    All masters lie in one flat fp32 buffer, in the order of ``parameters``; ``masters`` are views
    of it. Optimizer state exists from the start for every parameter that the optimizer trains.
    """

    def __init__(self, parameters: Sequence[TensorSpec], optimizer: OptimizerSpec | None) -> None:
        self._flat = torch.zeros(sum(spec.num_elements for spec in parameters))
        self.masters: dict[str, torch.Tensor] = dict(
            zip((spec.name for spec in parameters), unpack(self._flat, parameters), strict=True)
        )
        self.states: dict[str, State] = {}
        self._optimizer = optimizer
        if optimizer is not None:
            self._rule = rule_named(optimizer.rule)
            self.states = {
                name: init_state(self._rule, tuple(self.masters[name].shape), group.hyper)
                for group in optimizer.groups
                for name in group.names
                if name in self.masters
            }

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite masters with initial values or those of a checkpoint."""
        for name, value in values.items():
            self.masters[name].copy_(_matching(name, value, self.masters[name]))

    def fill_states(self, states: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Overwrite optimizer state with that of a checkpoint."""
        for name, state in states.items():
            for key, value in state.items():
                own = self.states[name][key]
                own.copy_(_matching(f"{name}.{key}", value, own))

    def update(self, gradients: Mapping[str, torch.Tensor], step: int) -> None:
        """Apply the optimizer's rule to some parameters, in place, for step ``step`` (from 1)."""
        assert self._optimizer is not None, "an evaluation program has no gradients"
        for group in self._optimizer.groups:
            names = [name for name in group.names if name in gradients]
            if names:
                self._rule.update(
                    [self.masters[name] for name in names],
                    [gradients[name] for name in names],
                    [self.states[name] for name in names],
                    group.at(step),
                    step,
                )


def _matching(name: str, value: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    if value.shape != own.shape:
        raise CheckpointError(
            f"tensor {name!r} has another shape than the model's",
            value=f"found {tuple(value.shape)}, expected {tuple(own.shape)}",
            remedy="start from a checkpoint of this model, or with another model_dir",
        )
    return value
