"""The weight store of one server: fp32 masters and optimizer state, in memory and in files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from memoryx.memory import Brought, Dram, Memory
from memoryx.optim.rule import Parameter, Shape, State, rule_named
from memoryx.snapshot import CopyRoom, Snapshot
from memoryx.sparsity.masks import Masks
from memoryx.sparsity.restoring import check_density, present_masks
from wsc.checkpoint import CLUSTER_STATES, parameter_of
from wsc.checkpoint.reader import Reader
from wsc.core.disk import LOCAL_DISK, Disk
from wsc.core.optimizer import OptimizerSpec, ParamGroup
from wsc.core.program import TensorSpec


class WeightStore:
    """Masters of the parameters that one server owns.

    All masters lie in one block of memory, in the order of ``parameters``. ``states`` holds the
    optimizer's tensors of every parameter that is trained. Who reads or writes the values of either
    asks ``memory`` for room first; ``weights`` are the masters for those who only read.
    """

    def __init__(self, parameters: Sequence[TensorSpec], memory: Memory | None = None) -> None:
        self.memory: Memory = memory or Dram()
        names = (spec.name for spec in parameters)
        tensors = self.memory.allocate([spec.shape for spec in parameters])
        self.masters: dict[str, torch.Tensor] = dict(zip(names, tensors, strict=True))
        self.weights: Mapping[str, torch.Tensor] = (
            Brought(self.masters, self.memory) if self.memory.is_bounded else self.masters
        )
        self.states: dict[str, State] = {}
        self.masks = Masks(self.memory)
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
        before, self.states = self.states, self._states(optimizer, kept)
        self.memory.discard(
            tensor
            for name, state in before.items()
            for key, tensor in state.items()
            if self.states.get(name, {}).get(key) is not tensor
        )
        self.masks.install(optimizer.sparsity, self.masters)

    def make_masks(self) -> None:
        """Make the masks that no checkpoint had; set all masked weights and states to zero."""
        if self.masks:
            self.before_change(self.masks.keys())
            self.masks.make(self.masters, self.states)

    def note_masks(self, names: Iterable[str]) -> None:
        """Note that masks were overwritten; set masked weights and states to zero."""
        changed = [name for name in names if name in self.masks]
        for name in changed:
            self.masks[name].note_changed()
        self.masks.apply(changed, self.masters, self.states)

    def of(self, name: str) -> dict[str, torch.Tensor]:
        """Return the master of a parameter as ``""``, and its optimizer state by name.

        The words of its mask, if it has one, are there as ``mask words``.
        """
        mask = {_MASK: self.masks[name].words} if name in self.masks else {}
        return {"": self.masters[name], **self.states.get(name, {}), **mask}

    def tensors(self, state: str) -> dict[str, torch.Tensor]:
        """Return the tensors of one of CLUSTER_STATES by their names in a checkpoint."""
        if state == "model":
            return self.masters
        if state == "sparsity":
            return {name: mask.integers for name, mask in self.masks.items()}
        return {
            f"{name}.{key}": tensor
            for name, tensors in self.states.items()
            for key, tensor in tensors.items()
        }

    def fill(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Overwrite tensors of one of CLUSTER_STATES."""
        own = self.tensors(state)
        self.before_change({parameter_of(name, state) for name in values})
        for name, value in values.items():
            self.memory.use((own[name],))
            own[name].copy_(value)
        if state == "sparsity":
            self.note_masks(values)
        else:
            self.masks.apply({parameter_of(n, state) for n in values}, self.masters, self.states)

    def update(self, gradients: Mapping[str, torch.Tensor], step: int) -> None:
        """Apply the optimizer's rule to some parameters, in place, for step ``step`` (from 1)."""
        assert self._optimizer is not None, "an evaluation program has no gradients"
        self.before_change(gradients.keys())
        for group in self._optimizer.groups:
            names = [name for name in group.names if name in gradients]
            # What is bounded is updated one by one: parameters do not mix.
            size = 1 if self.memory.is_bounded else max(1, len(names))
            for start in range(0, len(names), size):
                self._update(group, names[start : start + size], gradients, step)
                self.expect(names[start + size : start + 2 * size])

    def expect(self, names: Iterable[str], *, with_state: bool = True) -> None:
        """Begin to read what is used next: masters of parameters, with their state or without."""
        if self.memory.is_bounded:
            tensors = (self.of(name) if with_state else {"": self.masters[name]} for name in names)
            self.memory.expect(tensor for own in tensors for tensor in own.values())

    def _update(
        self,
        group: ParamGroup,
        names: Sequence[str],
        gradients: Mapping[str, torch.Tensor],
        step: int,
    ) -> None:
        """Apply the rule to some parameters of a group at once."""
        number = self.number_of(step)
        self.memory.use(tensor for name in names for tensor in self.of(name).values())
        pruned = self.pruned({name: gradients[name] for name in names}, step)
        parameters = [
            Parameter(self.masters[name], pruned[name], self.states[name]) for name in names
        ]
        self._rule.update(parameters, group.at(step), number)
        for name, parameter in zip(names, parameters, strict=True):
            self.masks.finish_update(name, parameter, gradients[name], number)

    def pruned(
        self, gradients: Mapping[str, torch.Tensor], step: int
    ) -> Mapping[str, torch.Tensor]:
        """Return gradients as the update of step ``step`` takes them: zero where masked."""
        return self.masks.prune_gradients(gradients, self.number_of(step))

    def number_of(self, step: int) -> int:
        """Return the number of the update of step ``step`` among all that the state has seen."""
        assert self._optimizer is not None, "an evaluation program updates nothing"
        return step + self._optimizer.earlier_updates

    def _states(self, optimizer: OptimizerSpec, kept: Mapping[str, State]) -> dict[str, State]:
        """Return the state of every parameter that an optimizer trains here.

        That is what is kept, and initial values of what is missing.
        """
        hyper_of = {
            name: group.hyper
            for group in optimizer.groups
            for name in group.names
            if name in self.masters
        }
        missing: list[tuple[str, str, Shape]] = []
        for name, hyper in hyper_of.items():
            shapes = self._rule.state_shapes(tuple(self.masters[name].shape), hyper)
            own = kept.get(name, {})
            missing += [(name, key, shape) for key, shape in shapes.items() if key not in own]
        states: dict[str, State] = {name: {} for name in hyper_of}
        tensors = self.memory.allocate([shape for _, _, shape in missing])
        for (name, key, _), tensor in zip(missing, tensors, strict=True):
            if value := self._rule.initial_value(key, hyper_of[name]):
                self.memory.use((tensor,))
                tensor.fill_(value)
            states[name][key] = tensor
        return {name: {**state, **kept.get(name, {})} for name, state in states.items()}


_MASK = "mask words"
"""The name of a mask among the tensors of its weight; no state of an optimizer has it."""


def _nothing(_parameters: Collection[str]) -> None:
    pass


class Persistence:
    """Saves and restores the store of one server; all servers write the same file."""

    def __init__(self, store: WeightStore, server: str, disk: Disk = LOCAL_DISK) -> None:
        self._store = store
        self._disk = disk
        self._server = server
        self._snapshot: Snapshot | None = None
        self._room = CopyRoom(store.memory.copy_limit_bytes)
        self._postponed: list[Callable[[], None]] = []

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
                own = tensors.setdefault(parameter_of(name, state), {})
                own[f"{prefix}.{name}"] = array
        self._snapshot = Snapshot(
            self._server,
            path,
            tensors,
            offsets,
            is_background,
            self._disk,
            self._store.memory,
            self._room,
            copies_ahead=is_background and not self._store.memory.is_bounded,
        )
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

        Without ``strict``, tensors that the file lacks keep their values. Optimizer state and masks
        are read later by ``catch_up`` if the store has no optimizer yet.

        Raises:
            CheckpointError: The file is damaged or does not match.
        """
        if state != "model" and not self._store.has_optimizer:
            self._postponed.append(partial(self.restore, path, state, strict))
            return
        self.finish_saving()
        prefix, own = CLUSTER_STATES[state], self._arrays(state)
        with self._disk.local(path) as local:
            reader = Reader(local)
            found = set(reader.names(prefix))
            present: Collection[str] = own if strict else own.keys() & found
            if state == "sparsity":
                owned = self._store.masters
                present = present_masks(self._store.masks, owned, found, str(path), strict)
            tensors = self._store.tensors(state)
            reader.read_into(
                {f"{prefix}.{name}": own[name] for name in present},
                before_each=lambda key: self._store.memory.use(
                    (tensors[key.removeprefix(f"{prefix}.")],)
                ),
            )
        if state == "sparsity":
            check_density(self._store.masks, present, str(path))
            self._store.note_masks(present)

    def catch_up(self) -> None:
        """Read what was requested before there was an optimizer; make the masks that are missing.

        Raises:
            CheckpointError: The file is damaged or does not match.
        """
        postponed, self._postponed = self._postponed, []
        for restore in postponed:
            restore()
        self._store.make_masks()

    def _arrays(self, state: str) -> dict[str, np.ndarray]:
        """Return views of the store's tensors of a state, by their names in a checkpoint."""
        return {name: tensor.numpy() for name, tensor in self._store.tensors(state).items()}
