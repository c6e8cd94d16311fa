"""What a collector of gradients holds, by the reduce order alone."""

from __future__ import annotations

from collections.abc import Iterable

from wsc.core.reduce_order import Merger, Subtree, leaf


def merged_subtrees(micro_batches: Iterable[int], num_micro_batches: int) -> list[Subtree]:
    """The subtrees that a collector which sees just these micro-batches ends up with."""
    merger: Merger[None] = Merger(num_micro_batches, add=lambda *_: None)
    for micro_batch in micro_batches:
        merger.offer(leaf(micro_batch, num_micro_batches), None)
    return [subtree for subtree, _ in merger.take()]
