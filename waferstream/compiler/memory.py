"""SRAM bytes of the values of a captured step, from shapes and live ranges.

Memory is counted by storage: views share it, and an op that writes in place takes none. Five
rules follow how the wafer computes:

    values that depend on the batch grow with the micro-batch; masks, positions, scalars are fixed
    (which the recording for all sizes knows, and a capture at one size guesses)
    weights and gradients stream, so they take no working memory
    an elementwise op overwrites an operand that no later op reads
    scores of attention are made a block of queries at a time, and none are kept
    at precision_opt_level 0 sums are fp32 and activations have the half type, as the vendor states
    it, where the graph holds both in fp32
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.ops import op_name
from waferstream.compiler.storages import GROWS, RERUN, storages_of, tensors_of
from waferstream.core.program.segment import Footprint, Stash

_REMADE_BY = frozenset({"elementwise", "copy", "norm", "reduction"})
"""Kinds of ops that cost little beside a product: compilers run them again instead of keeping their
results (PyTorch's min-cut rematerialization does)."""

_KEEPS_SIZE = frozenset({"elementwise", "copy", "view"})
_ALWAYS_FP32 = frozenset(
    ["_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"]
)
"""Ops whose results are fp32 at precision_opt_level 1, too."""


class Memory:
    """Storages of a captured step; ``streamed`` are the nodes that hold streamed weights."""

    def __init__(self, captured: Captured, streamed: Collection[fx.Node]) -> None:
        shape = captured.inputs[0].shape
        self.samples = max(1, *shape[:1]) if shape else 1
        self._growing = _growing(captured) - self._channel_statistics(captured)
        self._gradients = storages_of(_gradient_nodes(captured)).keys()
        self._halved = _sums(captured) - self._gradients if captured.sums_in_fp32 else set()
        self._given = storages_of([*captured.graph.find_nodes(op="placeholder"), *streamed]).keys()
        self._makers = _makers(captured)
        self.scores = scores_of(captured, streamed)
        self._scores = storages_of(self.scores).keys()

    def _channel_statistics(self, captured: Captured) -> set[int]:
        """Return the storages of means and deviations over the samples, one value per channel.

        Instance norm runs as a batch norm of one sample, with a channel per channel of each sample.
        """
        statistics: set[int] = set()
        for node in captured.graph.nodes:
            if op_name(node) == "native_batch_norm":
                inputs, (_, *saved) = tensors_of(node.args[0])[0], tensors_of(node)
                if inputs.shape[0] == self.samples:
                    statistics.update(tensor.untyped_storage()._cdata for tensor in saved)
        return statistics

    def stashes(self, outputs: Sequence[Sequence[fx.Node]]) -> tuple[tuple[Stash, ...], ...]:
        """Return, for each segment, the storages of its ``outputs`` that no earlier one stashed."""
        values: dict[int, list[str]] = {}
        for nodes in outputs:
            for node in nodes:
                for storage in storages_of([node]):
                    values.setdefault(storage, []).append(node.name)
        remade = self._remade({*self._given, *values})
        stashed = set(self._given)
        stashes = []
        for nodes in outputs:
            made = {s: size for s, size in storages_of(nodes).items() if s not in stashed}
            stashed.update(made)
            stashes.append(
                tuple(
                    Stash(tuple(values[s]), self._footprint(s, size), self._held(s, remade))
                    for s, size in made.items()
                )
            )
        return tuple(stashes)

    def _held(self, storage: int, remade: Collection[int]) -> Literal["whole", "remade", "blocked"]:
        """Return how a wafer holds a storage, where it can make some again."""
        if storage in self._scores:
            return "blocked"
        return "remade" if storage in remade else "whole"

    def _remade(self, kept: Collection[int]) -> set[int]:
        """Return the storages that cheap ops make from ``kept`` ones."""
        remade: set[int] = set()
        for storage, operands in self._cheap.items():  # operands are made first
            if all(operand in kept or operand in remade for operand in operands):
                remade.add(storage)
        return remade

    @cached_property
    def _cheap(self) -> dict[int, Collection[int]]:
        """What cheap ops make, in the order of the step, and of what that grows with the batch."""
        return {
            storage: (storages_of(maker.all_input_nodes).keys() - {storage}) & self._growing
            for storage, maker in self._makers.items()
            if maker.meta.get("kind") in _REMADE_BY
        }

    def blocked(self, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> Footprint:
        """Return the peak memory of the scores of attention among the values of ``nodes``."""
        return self._peak(nodes, outputs, lambda storage: storage in self._scores)

    def working(self, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> Footprint:
        """Return the peak memory of the values that ``nodes`` make.

        Scores of attention are left out, and what a rerun would make and can make later.
        """
        left_out = self._scores | self._remade_later(nodes)
        return self._peak(nodes, outputs, lambda storage: storage not in left_out)

    def _remade_later(self, nodes: Sequence[fx.Node]) -> set[int]:
        """Return the storages of rerun nodes that come again from others where they are read."""
        own = [node for node in nodes if not node.meta.get(RERUN)]
        kept = storages_of(operand for node in own for operand in node.all_input_nodes).keys()
        again = storages_of(node for node in nodes if node.meta.get(RERUN))
        return {s for s in again if s in kept and s not in self._scores} & self._remade(kept)

    def _peak(
        self,
        nodes: Sequence[fx.Node],
        outputs: Sequence[fx.Node],
        counts: Callable[[int], bool],
    ) -> Footprint:
        """Return the peak memory of the values that count; ``outputs`` live to the end.

        Fixed and per-sample bytes may peak at different ops; the result has the larger of each.
        """
        inside = set(nodes)
        operands = [operand for node in nodes for operand in node.all_input_nodes]
        brought = storages_of(operand for operand in operands if operand not in inside).keys()
        elsewhere = self._given | self._gradients | brought
        dying = _last_reads(nodes, keep=storages_of(outputs).keys())
        live: dict[int, Footprint] = {}
        peak = Footprint()
        for node in nodes:
            in_place = node.meta["kind"] == "elementwise"
            if in_place:
                _forget(live, dying.get(node, ()))
            for storage, size in storages_of([node]).items():
                if storage not in elsewhere and counts(storage):
                    live.setdefault(storage, self._footprint(storage, size))
            peak = peak.covering(sum(live.values(), Footprint()))
            _forget(live, dying.get(node, ()))
        return peak

    def _footprint(self, storage: int, num_bytes: int) -> Footprint:
        """Return the bytes of a storage, as per-sample bytes if it grows with the batch."""
        if storage in self._halved:
            num_bytes //= 2
        if storage in self._growing and storage not in self._gradients:
            return Footprint(sample_bytes=-(-num_bytes // self.samples))
        return Footprint(fixed_bytes=num_bytes)


def _sums(captured: Captured) -> set[int]:
    """Return the fp32 storages that have the half type where sums alone are fp32."""
    made = (node for node in captured.graph.nodes if op_name(node) not in _ALWAYS_FP32)
    tensors = (tensor for node in made for tensor in tensors_of(node))
    return {t.untyped_storage()._cdata for t in tensors if t.dtype == torch.float32}


def _growing(captured: Captured) -> set[int]:
    """Return the storages that grow with the samples.

    They are known where the step was recorded for all sizes. Else those of several elements that
    depend on the batch are taken for them, which is right at the size of the capture.
    """
    of_batch = _of_batch(captured)
    found: set[int] = set()
    for node in captured.graph.nodes:
        storages = [tensor.untyped_storage() for tensor in tensors_of(node)]
        known = node.meta.get(GROWS, ())
        if len(known) == len(storages):  # a pass may have replaced the value of a node
            found.update(s._cdata for s, grows in zip(storages, known, strict=True) if grows)
        elif node in of_batch:
            elements = zip(storages, tensors_of(node), strict=True)
            found.update(s._cdata for s, each in elements if s.nbytes() > each.element_size())
    return found


_PASSED_ON = frozenset({"elementwise", "softmax", "copy", "view", "random"})
"""Kinds of ops between the two products of attention."""


def scores_of(captured: Captured, streamed: Collection[fx.Node]) -> set[fx.Node]:
    """Return the values between two products of activations with activations: scores of attention.

    A fused kernel has none. In the backward pass, gradients of scores are such values, too.
    """
    weights = set(streamed)
    products = {
        node
        for node in captured.graph.nodes
        if op_name(node) in ("bmm", "baddbmm") and weights.isdisjoint(node.all_input_nodes)
    }
    after: set[fx.Node] = set()
    for node in captured.graph.nodes:
        if node in products or (_passes(node) and not after.isdisjoint(node.all_input_nodes)):
            after.add(node)
    before: set[fx.Node] = set()
    for node in reversed(captured.graph.nodes):
        if any(user in products or (_passes(user) and user in before) for user in node.users):
            before.add(node)
    return after & before


def _passes(node: fx.Node) -> bool:
    return node.meta.get("kind") in _PASSED_ON


def _makers(captured: Captured) -> dict[int, fx.Node]:
    """Return the op that makes each storage: the first whose value lies in it."""
    makers: dict[int, fx.Node] = {}
    for node in captured.graph.nodes:
        for storage in storages_of([node]):
            makers.setdefault(storage, node)
    return makers


def _last_reads(nodes: Sequence[fx.Node], keep: Collection[int]) -> dict[fx.Node, list[int]]:
    """Return the storages that no op reads after a node; unread ones die where they are made."""
    last: dict[int, fx.Node] = {}
    for node in nodes:
        for storage in storages_of([*node.all_input_nodes, node]):
            last[storage] = node
    dying: dict[fx.Node, list[int]] = {}
    for storage, node in last.items():
        if storage not in keep:
            dying.setdefault(node, []).append(storage)
    return dying


def _forget(live: dict[int, Footprint], storages: Iterable[int]) -> None:
    for storage in storages:
        live.pop(storage, None)


def _of_batch(captured: Captured) -> set[fx.Node]:
    """Return the inputs of the step and every node that depends on them."""
    given = {*captured.weights, *captured.state}
    found: set[fx.Node] = set()
    for node in captured.graph.nodes:
        is_input = node.op == "placeholder" and node not in given
        if is_input or any(operand in found for operand in node.all_input_nodes):
            found.add(node)
    return found


def _gradient_nodes(captured: Captured) -> set[fx.Node]:
    """Return the gradients of parameters, back to the op that sums each over the batch."""
    found = set(captured.gradients.values())
    for node in reversed(captured.graph.nodes):
        if node in found and node.meta.get("kind") in _KEEPS_SIZE:
            found.update(
                operand
                for operand in node.all_input_nodes
                if all(user in found or user.op == "output" for user in operand.users)
            )
    return found
