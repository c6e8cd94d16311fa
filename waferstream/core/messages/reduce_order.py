"""The reduce order: gradients are summed along a binary tree over micro-batch indices.

Floating-point addition is not associative, so the sum over micro-batches is bitwise reproducible
only if its parentheses are fixed. They depend on the micro-batch indices alone: at level k the
indices [lo, lo + 2^k) form a *subtree*; a subtree is the sum of its two halves, and where the
right half starts past the last micro-batch the subtree is its left half unchanged. Node, round
and switch of a micro-batch have no influence.

    level 2        [0..4)          [4..6)
    level 1     [0,1]  [2,3]    [4,5]
    level 0     0   1  2   3    4   5          num_micro_batches = 6

Any role may add two subtrees only if they are siblings; others it forwards unchanged. The order is
that of pairwise summation, whose error grows with log2(n) instead of n (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, order=True)
class Subtree:
    """The micro-batches [lo, lo + 2**level), cut off at the end of the batch."""

    lo: int
    level: int

    def sibling(self) -> Subtree:
        """Return the other half of this subtree's parent."""
        return Subtree(self.lo ^ (1 << self.level), self.level)

    def parent(self) -> Subtree:
        """Return the sum of this subtree and its sibling."""
        return Subtree(self.lo & ~(1 << self.level), self.level + 1)

    def size(self, num_micro_batches: int) -> int:
        """Return the number of micro-batches that the subtree covers."""
        return min(1 << self.level, num_micro_batches - self.lo)

    def promoted(self, num_micro_batches: int) -> Subtree:
        """Return the largest subtree with the same micro-batches: all right siblings are empty."""
        subtree = self
        while subtree != root(num_micro_batches) and subtree.sibling().lo >= num_micro_batches:
            subtree = subtree.parent()
        return subtree


def leaf(micro_batch: int, num_micro_batches: int) -> Subtree:
    """Return the subtree of one micro-batch, promoted past empty siblings."""
    if not 0 <= micro_batch < num_micro_batches:
        raise ValueError(f"micro-batch {micro_batch} is outside [0, {num_micro_batches})")
    return Subtree(micro_batch, 0).promoted(num_micro_batches)


def root(num_micro_batches: int) -> Subtree:
    """Return the subtree of the whole batch."""
    return Subtree(0, (num_micro_batches - 1).bit_length())


class Merger(Generic[Value]):
    """Sums of sibling subtrees, and only of those, which may arrive in any order.

    ``add(left, right)`` returns the sum; ``left`` always holds the lower micro-batches. It may
    reuse either operand's storage. Values are not None.
    """

    def __init__(self, num_micro_batches: int, add: Callable[[Value, Value], Value]) -> None:
        self._num_micro_batches = num_micro_batches
        self._add = add
        self._pending: dict[Subtree, Value] = {}

    def offer(self, subtree: Subtree, value: Value) -> Value:
        """Take one subtree's value and merge as far up the tree as siblings allow.

        Returns the value that is now held for the micro-batches of ``subtree``.
        """
        if subtree in self._pending:
            raise ValueError(f"{subtree} was offered twice")
        while (other := self._exchange(subtree, value)) is not None:
            is_left = subtree < subtree.sibling()
            value = self._add(value, other) if is_left else self._add(other, value)
            subtree = subtree.parent().promoted(self._num_micro_batches)
        return value

    def _exchange(self, subtree: Subtree, value: Value) -> Value | None:
        """Return the value of the sibling, which is held no more; without one, hold ``value``."""
        other = self._pending.pop(subtree.sibling(), None)
        if other is None:
            self._pending[subtree] = value
        return other

    def take(self) -> list[tuple[Subtree, Value]]:
        """Return all subtrees that are held, lowest micro-batch first, and empty the merger."""
        held = sorted(self._pending.items(), key=lambda item: item[0])
        self._pending.clear()
        return held

    @property
    def is_whole(self) -> bool:
        """Whether exactly the sum of the whole batch is held."""
        return list(self._pending) == [root(self._num_micro_batches)]
