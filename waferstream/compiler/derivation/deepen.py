"""Derive a captured step with many layers from a step that was captured with five.

Recording takes torch milliseconds for each op, and the layers of a large model are equal. A step is
recorded with the first five layers of a stack; the nodes of the middle layer are then copied for
the layers that are missing, by the rules of ``waferstream.compiler.derivation.depth``. The result
is the graph that a recording of all layers gives, node for node. ``is_like`` compares the two for
six layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, groupby
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensor
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_map_only

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, MIDDLE, Stack
from waferstream.compiler.derivation.layer_places import LayerPlaces, UnequalLayersError
from waferstream.compiler.storages import tensors_of
from waferstream.core.program.program import TensorSpec

_LAST = CAPTURED_LAYERS - 1
_OF_LEAVES = 2**64 - 1  # sequence number of what autograd does for leaves


def deepened(captured: Captured, stack: Stack, parameters: tuple[TensorSpec, ...]) -> Captured:
    """Return a step with all layers of a stack.

    Args:
        captured: The step with CAPTURED_LAYERS layers, at one micro-batch size.
        stack: The stack and the number of its layers.
        parameters: The masters of the whole model, in registration order.

    Raises:
        UnequalLayersError: The layers cannot be replicated.
    """
    names = stack.names(spec.name for spec in captured.parameters)
    if names != tuple(spec.name for spec in parameters):
        raise UnequalLayersError
    graph = _Copier(LayerPlaces.of(captured, stack), stack).graph
    return replace(
        captured,
        module=_LazyGraphModule(captured.module, graph),
        parameters=parameters,
        trained=stack.names(captured.trained),
    )


def is_like(one: Captured, other: Captured) -> bool:
    """Return whether two steps have the same nodes, tensors that share memory, and layers."""
    if (one.parameters, one.inputs, one.trained) != (other.parameters, other.inputs, other.trained):
        return False
    return list(_outlines(one)) == list(_outlines(other))


def _outlines(captured: Captured) -> Iterator[object]:
    """Yield all that the compiler reads of each node, with storages and sequences by number."""
    storages: dict[int, int] = {}
    sequences = map(_sequence, captured.graph.nodes)
    first = min((each for each in sequences if each is not None), default=0)
    for node in captured.graph.nodes:
        meta = node.meta
        marks = [meta.get(key) for key in ("layer", "backward", "seed", "loss_scale")]
        sequence = _sequence(node)
        tensors = tensors_of(node)
        shapes = [(t.dtype, t.shape, t.stride(), t.storage_offset()) for t in tensors]
        shared = [storages.setdefault(_storage(t), len(storages)) for t in tensors]
        order = None if sequence is None else sequence - first
        yield node.format_node(include_tensor_metadata=False), marks, order, shapes, shared


class _Copier:
    """Copies a graph with five layers to one with all layers of a stack."""

    def __init__(self, places: LayerPlaces, stack: Stack) -> None:
        self._places = places
        self._stack = stack
        self._added = stack.num_layers - CAPTURED_LAYERS
        self._copies = range(MIDDLE, MIDDLE + self._added + 1)  # numbers of the layers
        self._made: dict[tuple[fx.Node, int], fx.Node] = {}
        self._owner: dict[int, tuple[fx.Node, int]] = {}  # of a storage: node and result
        self._placeholders: Counter[str] = Counter()
        self._span, self._after, self._last = self._sequences()
        self.graph = fx.Graph()
        for number, run in places.runs:
            copies = self._copies if number == MIDDLE else range(1)
            for copy in copies[::-1] if run[0] in places.descending else copies:
                for node in run:
                    self._made[node, copy] = self._copied(node, copy)

    def _sequences(self) -> tuple[int, int, int]:
        """Return the sequence numbers that a layer takes, and the first and last after the middle.

        Only ops of the forward pass count, whose numbers autograd hands out in their order.
        """
        number = self._places.number
        forward = {
            node: sequence
            for node in number
            if (sequence := _sequence(node)) is not None and not node.meta["backward"]
        }
        following = [node for node in forward if number[node] == MIDDLE + 1]
        taken = {node: forward[node] - forward[self._places.middle[node]] for node in following}
        spans = {*taken.values()} - {0}  # casts of weights come before all layers
        if len(spans) != 1:
            raise UnequalLayersError
        last = max(forward[node] for node in forward if number[node] == _LAST)
        return spans.pop(), min(forward[node] for node in following if taken[node]), last

    def _copied(self, node: fx.Node, copy: int) -> fx.Node:
        number = self._places.number[node]
        if number == MIDDLE and node.op not in {"call_function", "placeholder"}:
            raise UnequalLayersError  # a constant of a layer
        args, kwargs = self._arguments((node.args, node.kwargs), node, copy)
        name = self._name(node)
        target = name if node.op == "placeholder" else node.target
        new = self.graph.create_node(node.op, target, args, kwargs, name, node.type)
        new.meta = dict(node.meta)
        if (own := self._stack.number(node.meta["layer"])) is not None:
            added = copy - MIDDLE if number == MIDDLE else self._added if own > MIDDLE else 0
            new.meta["layer"] = self._stack.renumbered(node.meta["layer"], own + added)
        if "seq_nr" in node.meta:
            new.meta["seq_nr"] += self._shift(node, copy)
        if "val" in node.meta:
            new.meta["val"] = self._values(node, copy)
        return new

    def _name(self, node: fx.Node) -> str:
        """Return the name that torch gives the node of a captured step."""
        if node.op == "placeholder":
            base = node.name.rpartition("_")[0] or node.name
            self._placeholders[base] += 1
            return f"{base}_{self._placeholders[base]}"
        packet = getattr(node.target, "overloadpacket", None)
        return node.name if packet is None else self.graph._target_to_str(packet.__name__)

    def _arguments(self, given: Any, reader: fx.Node, copy: int) -> Any:
        """Return arguments with each node replaced by what a copy of the reader reads."""
        if isinstance(given, fx.Node):
            return self._read(given, reader, copy)
        if isinstance(given, list | tuple):
            return type(given)(self._items(given, reader, copy))
        if isinstance(given, dict):
            return {key: self._arguments(value, reader, copy) for key, value in given.items()}
        if isinstance(given, slice):
            ends = (given.start, given.stop, given.step)
            return slice(*(self._arguments(end, reader, copy) for end in ends))
        return given

    def _items(self, given: Any, reader: fx.Node, copy: int) -> Iterator[Any]:
        """Yield the items of a list; a run of the middle layer is repeated: a2 b2 a3 b3."""
        repeats = reader.op == "output"
        for is_middle, run in groupby(given, self._is_middle):
            items = list(run)
            if is_middle and repeats:
                yield from (self._made[item, each] for each in self._copies for item in items)
            else:
                yield from (self._arguments(item, reader, copy) for item in items)

    def _is_middle(self, item: Any) -> bool:
        return isinstance(item, fx.Node) and self._places.number[item] == MIDDLE

    def _read(self, given: fx.Node, reader: fx.Node, copy: int) -> fx.Node:
        """Return the node that a copy of the reader reads in place of ``given``."""
        own, number = self._places.number[reader], self._places.number[given]
        node, of = given, copy
        if own != MIDDLE:
            if number == MIDDLE and own not in {MIDDLE - 1, MIDDLE + 1}:
                raise UnequalLayersError  # it would have to read every copy
            of = 0 if number != MIDDLE else self._copies[0 if own == MIDDLE - 1 else -1]
        elif number in {MIDDLE - 1, MIDDLE + 1}:
            of = copy + number - MIDDLE
            node, of = (self._places.middle[given], of) if of in self._copies else (given, 0)
        elif number != MIDDLE:
            of = 0
        if (node, of) not in self._made:
            raise UnequalLayersError
        return self._made[node, of]

    def _shift(self, node: fx.Node, copy: int) -> int:
        """Return by how much a copy's sequence number of autograd is larger.

        A node of the backward pass has the number of the op whose gradient it computes; sums of
        gradients have the last number.
        """
        number, sequence = self._places.number[node], _sequence(node)
        if sequence is None or sequence < self._after - (MIDDLE + 1) * self._span:
            return 0  # before the first layer
        if number == MIDDLE and sequence <= self._last:
            return (copy - MIDDLE) * self._span
        if number is None or sequence > self._last:
            return self._added * self._span if sequence >= self._after else 0
        return self._added * self._span if number > MIDDLE else 0

    def _values(self, node: fx.Node, copy: int) -> Any:
        """Return the tensors of a copied node; those that shared a storage still share one."""
        leaves = count()

        def tensor(given: torch.Tensor) -> torch.Tensor:
            leaf = next(leaves)
            owner, result = self._owner.setdefault(_storage(given), (node, leaf))
            if owner is not node:
                if self._is_middle(owner) or self._is_middle(node):
                    read = self._read(owner, node, copy)
                    given = _like(given, tensors_of(read)[result].untyped_storage())
            elif is_new:
                if result != leaf:
                    raise UnequalLayersError  # two results of one op in one storage
                storage = torch.UntypedStorage(given.untyped_storage().nbytes(), device="meta")
                given = _like(given, storage)
            return given

        is_new = self._is_middle(node) and copy != MIDDLE
        return tree_map_only(torch.Tensor, tensor, node.meta["val"])


def _sequence(node: fx.Node) -> int | None:
    """Return the sequence number of the autograd op that made a node, if one did."""
    sequence: int | None = node.meta.get("seq_nr")
    return None if sequence == _OF_LEAVES else sequence


def _storage(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage, which is unique among living tensors."""
    address: int = tensor.untyped_storage()._cdata
    return address


def _like(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor of the same shape in another storage."""
    meta = torch.empty(0, dtype=tensor.dtype, device="meta")
    meta.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    mode = getattr(tensor, "fake_mode", None)
    return meta if mode is None else FakeTensor(mode, meta, tensor.device)
