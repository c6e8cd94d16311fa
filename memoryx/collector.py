"""Collects one step's gradients: subtrees arrive in any order, sums leave in canonical order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from wsc.core.payload import Payload
from wsc.core.reduce_order import Merger, Subtree


@dataclass
class Sum:
    """The fp32 gradient of a subtree: owned, or borrowed until ``release`` is called."""

    flat: torch.Tensor
    release: Callable[[], None] | None

    def own(self) -> None:
        """Copy a borrowed gradient and let its sender have the memory back."""
        if self.release is not None:
            self.flat = self.flat.clone()
            self.give_back()

    def give_back(self) -> None:
        """Release a borrowed gradient that is not needed any more."""
        if self.release is not None:
            self.release()
            self.release = None


class GradientCollector:
    """Sums the subtrees of one gradient bucket over all rounds of a step."""

    def __init__(self, num_micro_batches: int) -> None:
        self._merger: Merger[Sum] = Merger(num_micro_batches, _add)

    def offer(self, subtree: Subtree, payload: Payload, release: Callable[[], None]) -> Sum | None:
        """Take one subtree; returns the whole batch's sum when it is complete.

        ``release`` is called once the payload has been read. A sum that must wait is copied, so
        that senders get their memory back at once; the one that completes the batch is used in
        place.
        """
        arrived = Sum(payload.view(torch.float32), release)
        self._merger.offer(subtree, arrived)
        if self._merger.is_whole:
            ((_, whole),) = self._merger.take()
            return whole
        arrived.own()
        return None


def _add(left: Sum, right: Sum) -> Sum:
    """Sum in the operand that is ours; a + b and b + a are the same bits."""
    kept, other = (left, right) if left.release is None else (right, left)
    kept.own()
    kept.flat.add_(other.flat)
    other.give_back()
    return kept
