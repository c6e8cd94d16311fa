"""Numbers of rows, such as ``arange(batch)``: where an op takes those of a micro-batch.

As a number such a value is that of the whole batch. As an index it picks a row of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import fx

from waferstream.compiler.ops import op_kind
from waferstream.compiler.results.sample_relations import base_name
from waferstream.compiler.results.two_sizes import TwoSizes

COPIES = frozenset({"clone", "_to_copy", "contiguous", "lift_fresh_copy"})


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
