"""The weight store of one server: fp32 masters and optimizer state, in memory and in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from memoryx.optim.rule import Hyper, Parameter, State, init_state, rule_named
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.reader import Reader
from wsc.checkpoint.writer import append_tensors
from wsc.core.optimizer import OptimizerSpec
from wsc.core.payload import unpack
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
        """Whether an optimizer was installed."""
        return self._optimizer is not None

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Allocate the optimizer's state for every parameter trained on this server.

        Installing the same rule again keeps the state, also with other hyper-parameters; those
        may need further states, which begin at their initial values.
        """
        installed, self._optimizer = self._optimizer, optimizer
        kept = self.states if installed and installed.rule == optimizer.rule else {}
        self._rule = rule_named(optimizer.rule)
        self.states = {
            name: self._state_of(name, group.hyper, kept.get(name, {}))
            for group in optimizer.groups
            for name in group.names
            if name in self.masters
        }

    def tensors(self, state: str) -> dict[str, torch.Tensor]:
        """Return the tensors of one of CLUSTER_STATES by their names in a checkpoint."""
        if state == "model":
            return self.masters
        return {
            f"{name}.{key}": tensor
            for name, tensors in self.states.items()
            for key, tensor in tensors.items()
        }

    def fill(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Overwrite tensors of one of CLUSTER_STATES."""
        own = self.tensors(state)
        for name, value in values.items():
            own[name].copy_(value)

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
                updates = step + self._optimizer.earlier_updates
                self._rule.update(parameters, group.at(step), updates)

    def _state_of(self, name: str, hyper: Hyper, kept: State) -> State:
        """Return the state of a parameter: what is kept, and initial values of what is missing."""
        shape = tuple(self.masters[name].shape)
        if self._rule.state_shapes(shape, hyper).keys() <= kept.keys():
            return kept
        return {**init_state(self._rule, shape, hyper), **kept}


class Persistence:
    """Saves and restores one store; several servers write the same file in turn."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self._postponed: Callable[[], None] | None = None

    def save(self, path: Path, state: str) -> None:
        """Append the tensors of one of CLUSTER_STATES to a file.

        Raises:
            CheckpointError: The file cannot be written.
        """
        append_tensors(path, CLUSTER_STATES[state], self._arrays(state))

    def restore(self, path: Path, state: str, strict: bool) -> None:
        """Read the tensors of one of CLUSTER_STATES in place.

        Without ``strict``, tensors that the file lacks keep their values. Optimizer state is read
        later by ``catch_up`` if the store has no optimizer yet.

        Raises:
            CheckpointError: The file is damaged or does not match.
        """
        if state == "optimizer" and not self._store.has_optimizer:
            self._postponed = partial(self.restore, path, state, strict)
            return
        prefix, own = CLUSTER_STATES[state], self._arrays(state)
        reader = Reader(path)
        present = own if strict else own.keys() & set(reader.names(prefix))
        reader.read_into({f"{prefix}.{name}": own[name] for name in present})

    def catch_up(self) -> None:
        """Read the optimizer state that was requested before there was an optimizer."""
        if self._postponed is not None:
            self._postponed()
            self._postponed = None

    def _arrays(self, state: str) -> dict[str, np.ndarray]:
        """Return views of the store's tensors of a state, by their names in a checkpoint."""
        return {name: tensor.numpy() for name, tensor in self._store.tensors(state).items()}
