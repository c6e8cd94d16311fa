"""Masters and optimizer state as they lie in memory: whole, or the values of non-zeros alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from memoryx.memory.memory import Memory
from memoryx.optim.rule import Hyper, Rule, Shape, State
from memoryx.sparsity.packing import Packing
from waferstream.core.program.program import TensorSpec


class Holdings:
    """The tensors of the parameters that one server owns.

    ``masters``, and ``states`` of those that are trained, are tensors as they are held. Those of a
    parameter with a packing are packed, state included; all others are whole.
    """

    def __init__(self, parameters: Sequence[TensorSpec], memory: Memory) -> None:
        self.memory = memory
        self.shapes: dict[str, Shape] = {spec.name: spec.shape for spec in parameters}
        tensors = memory.allocate(list(self.shapes.values()))
        self.masters: dict[str, torch.Tensor] = dict(zip(self.shapes, tensors, strict=True))
        self.states: dict[str, State] = {}
        self.packings: dict[str, Packing] = {}
        self._apart: set[str] = set()  # parameters whose memory no other one shares
        self._has_gaps = False  # in the memory that the others share

    def of(self, name: str) -> dict[str, torch.Tensor]:
        """Return the master of a parameter as ``""``, and its optimizer state by name, as held."""
        return {"": self.masters[name], **self.states.get(name, {})}

    def whole(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a held tensor of a parameter as a whole one, new if it is packed."""
        self.memory.use((tensor,))
        packing = self.packings.get(name)
        return tensor if packing is None else packing.unpack(tensor)

    def write(self, name: str, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Overwrite a held tensor of a parameter with a whole one."""
        self.memory.use((tensor,))
        packing = self.packings.get(name)
        tensor.copy_(value if packing is None else packing.pack(value))

    def hold(self, name: str, packing: Packing | None) -> None:
        """Hold a parameter and its state packed, or whole; elements without a place are lost."""
        before = self.packings.get(name)
        if packing is before:
            return
        shape = self.shapes[name] if packing is None else packing.held_shape
        old = self.of(name)
        new = old
        if before is None or shape != before.held_shape:
            new = dict(zip(old, self.memory.allocate([shape] * len(old)), strict=True))
        for key, tensor in old.items():
            whole = self.whole(name, tensor)
            self.memory.use((new[key],))
            new[key].copy_(whole if packing is None else packing.pack(whole))
        if new is not old:
            self._replace(name, new)
            self._has_gaps = self._has_gaps or name not in self._apart
            self._apart.add(name)
        self.packings.pop(name, None)
        if packing is not None:
            self.packings[name] = packing

    def set_apart(self, names: Iterable[str]) -> None:
        """Give parameters memory of their own, which is free again when they take another form."""
        for name in names:
            if name not in self._apart:
                self._move((name,))
                self._apart.add(name)
                self._has_gaps = True
        if self._has_gaps:
            self._move([name for name in self.shapes if name not in self._apart])
            self._has_gaps = False

    def hold_states(self, rule: Rule, trained: Mapping[str, Hyper], *, keeps: bool) -> None:
        """Hold the states that a rule needs, each at its initial value, in place of all others.

        Args:
            rule: The optimizer's rule.
            trained: The parameters that it trains, with their hyper-parameters.
            keeps: Whether states that are here already stay as they are.
        """
        before = self.states
        kept = before if keeps else {}
        missing = [
            (name, key, self._held_shape(name, shape))
            for name, hyper in trained.items()
            for key, shape in rule.state_shapes(self.shapes[name], hyper).items()
            if key not in kept.get(name, {})
        ]
        if missing:
            self._apart.clear()  # these tensors share memory
        states: dict[str, State] = {name: {} for name in trained}
        tensors = self.memory.allocate([shape for _, _, shape in missing])
        for (name, key, _), tensor in zip(missing, tensors, strict=True):
            if value := rule.initial_value(key, trained[name]):
                self.memory.use((tensor,))
                tensor.fill_(value)
            states[name][key] = tensor
        self.states = {name: {**state, **kept.get(name, {})} for name, state in states.items()}
        self.memory.discard(
            tensor
            for name, state in before.items()
            for key, tensor in state.items()
            if self.states.get(name, {}).get(key) is not tensor
        )

    def _held_shape(self, name: str, shape: Shape) -> Shape:
        """Return the shape in which a state of a parameter is held whose whole shape this is."""
        packing = self.packings.get(name)
        return shape if packing is None else packing.held_shape

    def _move(self, names: Sequence[str]) -> None:
        """Move the tensors of some parameters into new memory."""
        places = [(name, key) for name in names for key in self.of(name)]
        shapes = [tuple(self.of(name)[key].shape) for name, key in places]
        tensors = dict(zip(places, self.memory.allocate(shapes), strict=True))
        for name in names:
            new = {key: tensors[name, key] for key in self.of(name)}
            for key, tensor in self.of(name).items():
                self.memory.use((tensor, new[key]))
                new[key].copy_(tensor)
            self._replace(name, new)

    def _replace(self, name: str, tensors: dict[str, torch.Tensor]) -> None:
        """Let tensors take the place of those of a parameter."""
        self.memory.discard(self.of(name).values())
        self.masters[name] = tensors[""]
        if name in self.states:
            self.states[name] = {key: tensors[key] for key in self.states[name]}
