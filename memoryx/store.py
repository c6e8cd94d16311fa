"""The weight store of one server: fp32 masters and optimizer state, in memory and in files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from memoryx.optim.rule import Hyper, Parameter, State, init_state, rule_named
from memoryx.snapshot import Snapshot
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.reader import Reader
from wsc.core.disk import LOCAL_DISK, Disk
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
        self.before_change: Callable[[Collection[str]], None] = _nothing
        """Called with the names of parameters before they, or their states, change."""

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
        self.before_change({_parameter_of(name, state) for name in values})
        for name, value in values.items():
            own[name].copy_(value)

    def update(self, gradients: Mapping[str, torch.Tensor], step: int) -> None:
        """Apply the optimizer's rule to some parameters, in place, for step ``step`` (from 1)."""
        assert self._optimizer is not None, "an evaluation program has no gradients"
        self.before_change(gradients.keys())
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


def _nothing(_parameters: Collection[str]) -> None:
    pass


def _parameter_of(name: str, state: str) -> str:
    """Return the parameter that a tensor of a checkpoint state belongs to."""
    return name if state == "model" else name.rpartition(".")[0]


class Persistence:
    """Saves and restores the store of one server; all servers write the same file."""

    def __init__(self, store: WeightStore, server: str, disk: Disk = LOCAL_DISK) -> None:
        self._store = store
        self._disk = disk
        self._server = server
        self._snapshot: Snapshot | None = None
        self._postponed: Callable[[], None] | None = None

    def layout(self, states: Collection[str]) -> list[TensorSpec]:
        """Return key, shape and dtype of every tensor of some of CLUSTER_STATES."""
        return [
            TensorSpec(f"{CLUSTER_STATES[state]}.{name}", array.shape, array.dtype.name)
            for state in states
            for name, array in self._arrays(state).items()
        ]

    def save(self, path: Path, offsets: Mapping[str, int], is_background: bool) -> None:
        """Begin to write the tensors of these keys, with the values that they have now."""
        self.finish_saving()
        tensors: dict[str, dict[str, np.ndarray]] = {}
        for state, prefix in CLUSTER_STATES.items():
            for name, array in self._arrays(state).items():
                own = tensors.setdefault(_parameter_of(name, state), {})
                own[f"{prefix}.{name}"] = array
        self._snapshot = Snapshot(self._server, path, tensors, offsets, is_background, self._disk)
        self._store.before_change = self._snapshot.protect
        self._snapshot.start()

    def finish_saving(self) -> None:
        """Wait until everything is written that ``save`` has begun."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._store.before_change = _nothing
            self._snapshot = None

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
        self.finish_saving()
        prefix, own = CLUSTER_STATES[state], self._arrays(state)
        with self._disk.local(path) as local:
            reader = Reader(local)
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
