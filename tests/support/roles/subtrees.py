"""The subtrees that a merger holds, by the reduce order alone."""

from __future__ import annotations

from collections.abc import Iterable

from waferstream.core.messages.reduce_order import Merger, Subtree, leaf


def merged_subtrees(micro_batches: Iterable[int], num_micro_batches: int) -> list[Subtree]:
    """Return the subtrees that a merger of just these micro-batches holds."""
    merger: Merger[str] = Merger(num_micro_batches, add=lambda *_: "sum")
    for micro_batch in micro_batches:
        merger.offer(leaf(micro_batch, num_micro_batches), "leaf")
    return [subtree for subtree, _ in merger.take()]
