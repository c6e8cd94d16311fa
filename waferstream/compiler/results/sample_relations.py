"""Tell ops that relate the samples of a batch to each other, and ops that take rows by number.

As a number a value such as ``arange(batch)`` is that of the whole batch. As an index it picks a row
of the micro-batch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from math import isclose
from typing import Any

from torch import fx

from waferstream.compiler.ops import op_kind, op_name
from waferstream.compiler.results.two_sizes import TwoSizes
from waferstream.compiler.storages import tensors_of

_ALONG = {
    "_softmax": 1, "_log_softmax": 1, "_safe_softmax": 1, "logsumexp": 1, "cumsum": 1,
    "cumprod": 1, "logcumsumexp": 1, "cummax": 1, "cummin": 1, "topk": 2, "kthvalue": 2,
    "roll": 2, "flip": 1, "renorm": 2, "median": 1, "mode": 1, "select": 1,
}  # fmt: skip
"""Ops in which the elements along a dimension meet, with the position of that dimension."""

_PICKED_ALONG = frozenset({"index_select", "gather"})
"""Ops that take elements along a dimension by number."""

_LAST = 2**62  # ends of slices beyond are those of the tensor

COPIES = frozenset({"clone", "_to_copy", "contiguous", "lift_fresh_copy"})


def base_name(node: fx.Node) -> str:
    """Return the name of an op without the mark of its form in place."""
    return op_name(node).rstrip("_")


def relates_samples(
    sizes: TwoSizes, node: fx.Node, says_samples: Callable[[fx.Node], bool]
) -> bool:
    """Return whether a row of an op's value depends on several samples of its first operand.

    Args:
        sizes: The step at two sizes.
        node: The op.
        says_samples: Tells whether an index is an input that names rows of the batch.
    """
    first: Any = node.args[0]
    samples = sizes.samples(first) if isinstance(first, fx.Node) else ()
    name = base_name(node)
    if name == "embedding":
        return len(node.args) > 3 and bool(node.args[3])  # scale_grad_by_freq
    if not samples:
        return False
    if name in _ALONG:
        return _names(node, _ALONG[name], samples)
    if name == "slice":
        return _cuts(sizes, node, samples)
    if name == "index" or name in _PICKED_ALONG:
        return any(map(says_samples, _rows_picked(node, samples)))
    return _is_sorted(node) and _names(first, 1, samples)


def _rows_picked(node: fx.Node, samples: Sequence[int]) -> list[fx.Node]:
    """Return the numbers by which an op takes elements along the dimensions of the samples."""
    index: Any = node.args[1]
    if base_name(node) != "index":
        return [node.args[2]] if _names(node, 1, samples) else []  # type: ignore[list-item]
    return [part for dim, part in enumerate(index) if part is not None and dim in samples]


def _is_sorted(node: fx.Node) -> bool:
    """Return whether a node is what ``sort`` puts in order.

    Sorted numbers of experts do not count: they only say where the tokens of each begin.
    """
    made: Any = node.args[0] if node.target is operator.getitem else None
    if made is None or op_name(made) != "sort" or node.args[1] != 0:
        return False
    return bool(node.meta["val"].dtype.is_floating_point)


def _names(node: fx.Node, place: int, samples: Sequence[int]) -> bool:
    """Return whether a dimension that an op names, or takes by default, is one of the samples'."""
    dims: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dim")
    if dims is None or isinstance(dims, bool):
        dims = -1
    listed = dims if isinstance(dims, list | tuple) else [dims]
    named = {int(dim) % _ndim(node.args[0]) for dim in listed}
    return not named or not named.isdisjoint(samples)


def _cuts(sizes: TwoSizes, node: fx.Node, samples: Sequence[int]) -> bool:
    """Return whether a slice takes samples by their place in the batch."""
    dim, *bounds = node.args[1:4] if len(node.args) > 1 else (0,)
    if dim % _ndim(node.args[0]) not in samples:  # type: ignore[operator]
        return False
    moved = dict(sizes.numbers(node))
    kept = (b for b in bounds if isinstance(b, int) and b not in moved and 0 != b < _LAST)
    grows = (isclose(a * sizes.rows_of_batch, b * sizes.rows) for a, b in moved.items())
    return any(kept) or not all(grows)


def _ndim(node: Any) -> int:
    return max(tensors_of(node)[0].ndim, 1)


class RowPlaces:
    """Tells how ops read numbers of rows.

    Args:
        sizes: The step at two sizes.
        of_inputs: The values that follow from inputs alone.
    """

    def __init__(self, sizes: TwoSizes, of_inputs: Collection[fx.Node]) -> None:
        self._sizes = sizes
        self._of_inputs = of_inputs

    def picks(self, reader: fx.Node, place: fx.Node) -> bool:
        """Return whether an op picks or writes something of each sample, by its row's number.

        Numbers that are written at rows which the micro-batch has put in order say where these
        were (``back[order] = arange(len(order))``).
        """
        name = base_name(reader)
        if name.startswith("_embedding_bag"):  # of its own indices
            return True
        if name not in {"index", "index_put"}:
            return False
        source, index, *values = _arguments(reader)
        samples = self._sizes.samples(source)
        parts = {dim: part for dim, part in enumerate(index) if part is not None}
        if values[:1] == [place]:
            rows = [part for dim, part in parts.items() if dim in samples]
            return bool(rows) and not any(part in self._of_inputs for part in rows)
        return all(dim in samples for dim, part in parts.items() if part is place)

    def keeps(self, node: fx.Node, place: fx.Node) -> bool:
        """Return whether an op may read numbers of rows of a micro-batch."""
        is_same = op_kind(node) == "view" or base_name(node) in COPIES
        return is_same or node in self._of_inputs or self.picks(node, place)


def are_places(node: fx.Node, places: Sequence[fx.Node]) -> bool:
    """Return whether a value is numbers of rows, as some operands of its op are."""
    name = base_name(node)
    if name == "index_put":
        return _arguments(node)[2] in places
    is_picked = name == "index" or name.startswith("_embedding_bag")
    return bool(places) and not is_picked


def _arguments(node: fx.Node) -> list[Any]:
    return list(node.args)
