"""The weight store of one server: fp32 masters and optimizer state, in memory and in files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch

from memoryx.memory.memory import Dram, Made, Memory
from memoryx.optim.rule import Parameter, State, rule_named
from memoryx.sparsity.masks import Masks
from memoryx.sparsity.packing import Packing
from memoryx.store.holdings import Holdings
from waferstream.checkpoint import parameter_of
from waferstream.core.optimizer import OptimizerSpec, ParamGroup, WeightAverage, advance
from waferstream.core.program.program import TensorSpec
from waferstream.core.sparsity.nonzeros import Index


class WeightStore:
    """Masters of the parameters that one server owns.

    ``masters``, and ``states`` of every parameter that is trained, are tensors as they are held:
    those of most sparse weights are packed (memoryx.sparsity.packing). Who reads or writes their
    values asks ``memory`` for room first; ``weights`` are whole masters for those who only read.
    """

    def __init__(self, parameters: Sequence[TensorSpec], memory: Memory | None = None) -> None:
        self.memory: Memory = memory or Dram()
        self._held = Holdings(parameters, self.memory)
        self.weights: Mapping[str, torch.Tensor] = Made(self.masters.keys(), self._weight)
        self.masks = Masks(self.memory)
        self.packs = True
        """Whether sparse weights may be packed; not where others have views of masters."""
        self._optimizer: OptimizerSpec | None = None
        self._averages: dict[str, list[WeightAverage]] = {}  # of each source
        self.before_change: Callable[[Collection[str]], None] = ignore_change
        """Called with the names of parameters before they, or their states, change."""

    @property
    def masters(self) -> dict[str, torch.Tensor]:
        """The masters as they are held."""
        return self._held.masters

    @property
    def states(self) -> dict[str, State]:
        """The optimizer state of every trained parameter, as it is held."""
        return self._held.states

    @property
    def packings(self) -> Mapping[str, Packing]:
        """Where the values of packed parameters belong."""
        return self._held.packings

    @property
    def num_bytes(self) -> int:
        """The bytes of masters and optimizer state, and of all that places their values."""
        tensors = (tensor for name in self.masters for tensor in self._held.of(name).values())
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values()) + sum(map(self.masks.index_bytes, self.masks))

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
        self._averages = {}
        for each in optimizer.averages:
            self._averages.setdefault(each.source, []).append(each)
        self._rule = rule_named(optimizer.rule)
        sparse = {spec.name for spec in optimizer.sparsity if self._rule.is_elementwise}
        for name in [name for name in self.packings if name not in sparse]:
            self._held.hold(name, None)
        trained = {
            name: group.hyper
            for group in optimizer.groups
            for name in group.names
            if name in self.masters
        }
        keeps = installed is not None and installed.rule == optimizer.rule
        self._held.hold_states(self._rule, trained, keeps=keeps)
        self.masks.install(optimizer.sparsity, self._held.shapes)

    def make_masks(self) -> None:
        """Make the masks that no checkpoint had; set all masked weights and states to zero."""
        if self.masks:
            self.before_change(self.masks.keys())
            self.masks.make(self.weights)
            self._mask(self.masks)
            if self.packs:
                self._held.set_apart(self.masks)

    def note_masks(self, names: Iterable[str]) -> None:
        """Note that masks were overwritten; set masked weights and states to zero."""
        changed = [name for name in names if name in self.masks]
        for name in changed:
            self.masks[name].note_changed()
        self._mask(changed)

    def note_filled(self, names: Iterable[str]) -> None:
        """Set masked elements to zero where whole weights or states were overwritten."""
        self._mask(name for name in names if name in self.masks)

    def of(self, name: str) -> dict[str, torch.Tensor]:
        """Return the master of a parameter as ``""``, and its optimizer state by name, as held.

        The words of its mask, if it has one, are there as ``mask words``.
        """
        mask = {_MASK: self.masks[name].words} if name in self.masks else {}
        return {**self._held.of(name), **mask}

    def take_back(self, name: str, image: Mapping[str, torch.Tensor]) -> None:
        """Overwrite a parameter with copies of all that ``of`` returned earlier."""
        if name in self.masks:
            self.memory.use((self.masks[name].words, image[_MASK]))
            self.masks[name].words.copy_(image[_MASK])
            self.note_masks((name,))
        for key, tensor in self._held.of(name).items():
            self.memory.use((tensor, image[key]))
            tensor.copy_(image[key])

    def held(self, state: str) -> dict[str, torch.Tensor]:
        """Return the tensors of one of CLUSTER_STATES as held, by their names in a checkpoint."""
        if state == "model":
            return self.masters
        if state == "sparsity":
            return {name: mask.integers for name, mask in self.masks.items()}
        return {
            f"{name}.{key}": tensor
            for name, tensors in self.states.items()
            for key, tensor in tensors.items()
        }

    def tensors(self, state: str) -> Mapping[str, torch.Tensor]:
        """Return the whole tensors of one of CLUSTER_STATES by their names in a checkpoint."""
        own = self.held(state)

        def make(name: str) -> torch.Tensor:
            if state != "sparsity":
                return self._held.whole(parameter_of(name, state), own[name])
            self.memory.use((own[name],))
            return own[name]

        return Made(own.keys(), make)

    def present(self, name: str, index: Index | None) -> torch.Tensor:
        """Return the flat values of a master that the index of its mask places; all without one."""
        if index is None or name not in self.packings:
            whole = self.weights[name].view(-1)
            return whole if index is None else index.pack(whole)
        self.memory.use((self.masters[name],))
        return self.packings[name].values(self.masters[name])

    def fill(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Overwrite tensors of one of CLUSTER_STATES with whole ones."""
        own = self.held(state)
        parameters = {parameter_of(name, state) for name in values}
        self.before_change(parameters)
        for name, value in values.items():
            if state == "sparsity":
                self.memory.use((own[name],))
                own[name].copy_(value)
            else:
                self._held.write(parameter_of(name, state), own[name], value)
        if state == "sparsity":
            self.note_masks(values)
        else:
            self.note_filled(parameters)

    def update(self, gradients: Mapping[str, torch.Tensor], applied: int) -> None:
        """Apply the optimizer's rule to some parameters, in place.

        ``applied`` is the number of the step, from 1, among those whose updates are applied.
        """
        assert self._optimizer is not None, "an evaluation program has no gradients"
        self.before_change([*gradients, *self._averaged(gradients)])
        for group in self._optimizer.groups:
            names = [name for name in group.names if name in gradients]
            # What is bounded is updated one by one: parameters do not mix.
            size = 1 if self.memory.is_bounded else max(1, len(names))
            for start in range(0, len(names), size):
                for missed, some in self._by_missed(names[start : start + size]).items():
                    self._update(group, some, gradients, applied, missed)
                self._average(names[start : start + size], applied)
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
        applied: int,
        missed: int,
    ) -> None:
        """Apply the rule to some parameters of a group, which have missed some updates, at once."""
        update = self.update_of(applied)
        self.memory.use(tensor for name in names for tensor in self.of(name).values())
        parameters = [
            Parameter(
                self.masters[name], self._gradient(name, gradients[name], update), self.states[name]
            )
            for name in names
        ]
        self._rule.update(parameters, group.at(applied), update - missed)
        for name in names:
            self._finish_update(name, gradients[name], update)

    def _by_missed(self, names: Sequence[str]) -> Mapping[int, Sequence[str]]:
        """Return parameters by how many updates they have missed."""
        assert self._optimizer is not None, "an evaluation program updates nothing"
        if not self._optimizer.missed:
            return {0: names}
        found: dict[int, list[str]] = {}
        for name in names:
            found.setdefault(self._optimizer.missed.get(name, 0), []).append(name)
        return found

    def _averaged(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the moving averages of parameters."""
        for name in names:
            yield from (each.average for each in self._averages.get(name, ()))

    def _average(self, names: Sequence[str], applied: int) -> None:
        """Advance the moving averages of parameters that were updated."""
        update = self.update_of(applied)
        for each in [each for name in names for each in self._averages.get(name, ())]:
            source = self.weights[each.source]
            self.memory.use((self.masters[each.average], self.masters[each.source]))
            advance(self.masters[each.average], source, each.decay_at(update))

    def _gradient(self, name: str, gradient: torch.Tensor, update: int) -> torch.Tensor:
        """Return the gradient of a parameter in the form in which it is held."""
        packing = self.packings.get(name)
        if packing is not None:
            return packing.pack(gradient)
        return self.masks.whole(self.masks.prune_gradients({name: gradient}, update))[name]

    def _finish_update(self, name: str, gradient: torch.Tensor, update: int) -> None:
        """Set masked elements to zero after an update; change the mask where that is due."""
        if name not in self.masks:
            return
        if name not in self.packings:
            self.masks.clear(name, self._held.of(name).values())
        if self.masks.spec(name).changes_at(update):
            self.masks.change(name, self.weights[name], gradient, update)
            self._mask((name,))

    def _mask(self, names: Iterable[str]) -> None:
        """Hold weights and their states as their masks say: packed, or whole with zeros."""
        for name in names:
            if not self.masks[name].is_made:
                continue
            self._held.hold(name, self._packing(name))
            if name not in self.packings:
                own = self._held.of(name).values()
                self.memory.use((self.masks[name].words, *own))
                self.masks.clear(name, own)

    def _packing(self, name: str) -> Packing | None:
        """Return how a sparse weight is to be held; None for whole."""
        if not self.packs or not self._rule.is_elementwise:
            return None
        packing = self.masks.packing(name)
        return packing if packing.pays(len(self._held.of(name))) else None

    def _weight(self, name: str) -> torch.Tensor:
        return self._held.whole(name, self.masters[name])

    def pruned(
        self, gradients: Mapping[str, torch.Tensor], applied: int
    ) -> Mapping[str, torch.Tensor]:
        """Return gradients as ``update`` takes them: zero where masked."""
        return self.masks.prune_gradients(gradients, self.update_of(applied))

    def update_of(self, applied: int) -> int:
        """Return the number of an update among all that the state has seen, from 1.

        ``applied`` counts those since step 1 of training.
        """
        assert self._optimizer is not None, "an evaluation program updates nothing"
        return applied + self._optimizer.earlier_updates


_MASK = "mask words"
"""The name of a mask among the tensors of its weight; no state of an optimizer has it."""


def ignore_change(_parameters: Collection[str]) -> None:
    """Do nothing before parameters change: none of them is being saved."""
