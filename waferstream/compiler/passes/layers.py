"""Assignment of each op to a layer, forward or backward: its ``meta["segment"]``.

A layer is a module path up to its first number (``decoder.3`` for ``decoder.3.ffn.up``), or the
whole path if it has none (``embedding``). Forward ops carry the path of the module that ran; a
backward op belongs to the layer of the forward op with the same autograd sequence number; an op
with neither (the loss, sums of gradients) belongs to the current segment.

Layers with few parameters (a final norm) join a neighbour, so that no message is spent on a few
kilobytes; the joined layer has the name of its part with most parameters. Numbered layers never
join each other or an earlier layer, so they stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.core.program.segment import Phase

SMALL_LAYER_BYTES = 256 * 1024
"""A layer that streams fewer bytes is joined with a neighbour: each segment has fixed costs."""


@dataclass(frozen=True)
class SegmentKey:
    """A run of consecutive ops of one layer in one direction, which becomes a segment."""

    index: int
    phase: Phase
    layer: str


def assign_segments(captured: Captured) -> None:
    """Set ``meta["segment"]`` of every node except placeholders and the output."""
    layer_of = layers_of(captured)
    joined = _join_small(captured, layer_of)
    running = SegmentKey(0, "forward", next(iter(joined.values()), "step"))
    for node in captured.graph.nodes:
        if node.op in {"placeholder", "output"}:
            continue
        phase: Phase = "backward" if node.meta["backward"] else running.phase
        layer = joined[layer_of[node]] if node in layer_of else running.layer
        if (phase, layer) != (running.phase, running.layer):
            running = SegmentKey(running.index + 1, phase, layer)
        node.meta["segment"] = running


def layer_name(path: str) -> str:
    """Return ``decoder.3`` for ``decoder.3.ffn.up``; the path itself if it has no number."""
    parts = path.split(".")
    for index, part in enumerate(parts):
        if part.isdecimal():
            return ".".join(parts[: index + 1])
    return path


def layers_of(captured: Captured) -> dict[fx.Node, str]:
    """Return the layer of each node that has a module path or a known sequence number."""
    by_sequence: dict[int, str] = {}
    layers: dict[fx.Node, str] = {}
    for node in captured.graph.nodes:
        sequence = node.meta.get("seq_nr")
        if node.meta["backward"]:
            known = None if node.meta.get("is_gradient_acc") else by_sequence.get(sequence)
        else:
            known = layer_name(node.meta["layer"]) or None
            if known and sequence is not None:
                by_sequence[sequence] = known
        if known:
            layers[node] = known
    return layers


def _join_small(captured: Captured, layer_of: dict[fx.Node, str]) -> dict[str, str]:
    """Map each layer to the joined layer that it belongs to, in forward order."""
    order: list[str] = []
    for node, layer in layer_of.items():
        if not node.meta["backward"] and layer not in order:
            order.append(layer)
    size = _streamed_bytes(captured)
    joined: dict[str, str] = {}
    for position, layer in enumerate(order):
        if size.get(layer, 0) >= SMALL_LAYER_BYTES or len(order) == 1 or _is_numbered(layer):
            joined[layer] = layer
        elif position > 0 and not _is_numbered(order[position - 1]):
            joined[layer] = joined[order[position - 1]]
        elif position + 1 < len(order):
            joined[layer] = order[position + 1]
        else:
            joined[layer] = layer
    return _named({layer: joined.get(target, target) for layer, target in joined.items()}, size)


def _named(joined: dict[str, str], size: Mapping[str, int]) -> dict[str, str]:
    """Call each joined layer by its part with most weights: ``embedding``, not what follows it."""
    parts: dict[str, list[str]] = {}
    for layer, target in joined.items():
        parts.setdefault(target, []).append(layer)
    names = {
        target: target
        if _is_numbered(target) or not any(size.get(layer) for layer in layers)
        else max(layers, key=lambda layer: size.get(layer, 0))
        for target, layers in parts.items()
    }
    return {layer: names[target] for layer, target in joined.items()}


def _is_numbered(layer: str) -> bool:
    return layer.rsplit(".", maxsplit=1)[-1].isdecimal()


def _streamed_bytes(captured: Captured) -> dict[str, int]:
    """Return the streamed bytes of the parameters of each layer."""
    element_bytes = BYTES_PER_ELEMENT[captured.stream_dtype]
    size: dict[str, int] = {}
    for spec in captured.parameters:
        layer = layer_name(spec.name.rpartition(".")[0])
        size[layer] = size.get(layer, 0) + spec.num_elements * element_bytes
    return size
