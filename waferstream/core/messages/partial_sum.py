"""Partial sums of gradients, borrowed from their sender or owned by the role that adds them.

CS nodes, switches and weight servers all add partial sums in the reduce order
(waferstream.core.messages.reduce_order). They differ only in the memory that a sum takes and in who
computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from waferstream.core.messages.messages import Envelope
from waferstream.core.messages.payload import Payload

_CAST_ELEMENTS = 1 << 18
"""Elements that are cast at a time: 1 MiB in fp32 (docs/host.md)."""

Operands = Iterable[tuple[torch.Tensor, ...]]
ForEach = Callable[[Callable[..., object], Operands], object]
"""Calls a function on each tuple of operands: one after the other, or on several threads."""


def one_by_one(act: Callable[..., object], operands: Operands) -> None:
    """Call ``act`` on each tuple of operands, in this thread."""
    for each in operands:
        act(*each)


@dataclass(frozen=True)
class Credit:
    """The return of a borrowed payload: a call puts its message into an outbox."""

    envelope: Envelope
    outbox: list[Envelope]

    def __call__(self) -> None:
        self.outbox.append(self.envelope)


@dataclass
class PartialSum:
    """The gradient of one subtree of micro-batches.

    ``tensors`` are one flat tensor, or one tensor for each parameter. An owned sum is fp32 and may
    be added to in place; any other is only read, in the dtype that it has. ``memory`` is the
    payload behind the tensors, if there is one. ``on_release`` is called once, after the last
    read.
    """

    tensors: Sequence[torch.Tensor]
    memory: Payload | None = None
    is_owned: bool = False
    on_release: Callable[[], None] | None = None

    @property
    def flat(self) -> torch.Tensor:
        """The only tensor of a sum that is kept flat."""
        (flat,) = self.tensors
        return flat

    @property
    def payload(self) -> Payload:
        """The payload to send."""
        assert self.memory is not None, "the sum is not in a payload"
        return self.memory

    def add(
        self,
        other: PartialSum,
        allocate: Callable[[PartialSum], PartialSum],
        for_each: ForEach = one_by_one,
    ) -> PartialSum:
        """Return the sum of both and release what is no longer read.

        The sum is formed in an owned operand, in new memory if there is none. Which of the two is
        added to the other does not matter: a + b and b + a are the same bits.

        Args:
            other: The sibling subtree.
            allocate: Returns an owned sum of the same shapes, its contents undefined.
            for_each: Adds tensor by tensor.
        """
        if not (self.is_owned or other.is_owned):
            total = allocate(self)
            pairs = zip(self.tensors, other.tensors, strict=True)
            for_each(
                _add_into,
                ((to, *pair) for to, pair in zip(total.tensors, pairs, strict=True)),
            )
            self.release()
            other.release()
            return total
        total, read = (self, other) if self.is_owned else (other, self)
        for_each(_add_to, zip(total.tensors, read.tensors, strict=True))
        read.release()
        return total

    def move_to(self, place: PartialSum, for_each: ForEach = one_by_one) -> None:
        """Copy the sum into the memory of another, which it takes over, and release its own."""
        for_each(torch.Tensor.copy_, zip(place.tensors, self.tensors, strict=True))
        self.release()
        self.tensors, self.memory, self.is_owned = place.tensors, place.memory, place.is_owned
        self.on_release = place.on_release

    def release(self) -> None:
        """Give the memory back, once."""
        if self.on_release is not None:
            self.on_release()
            self.on_release = None


def _add_into(target: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Write ``left + right`` to ``target`` in fp32."""
    if left.dtype == right.dtype == torch.float32:
        torch.add(left, right, out=target)
        return
    for to, one, other in _pieces(target, left, right):
        to.copy_(one).add_(other)


def _add_to(total: torch.Tensor, other: torch.Tensor) -> None:
    """Add ``other`` to ``total``, which is fp32."""
    if other.dtype == torch.float32:
        total.add_(other)
        return
    for to, one in _pieces(total, other):
        to.add_(one)


def _pieces(target: torch.Tensor, *operands: torch.Tensor) -> Operands:
    """Yield pieces of a target and its operands that belong together and fit the cache.

    Torch casts an operand of another dtype before it adds, into memory that should stay there.
    """
    flat = (target.view(-1), *(operand.flatten() for operand in operands))
    return zip(*(tensor.split(_CAST_ELEMENTS) for tensor in flat), strict=True)
