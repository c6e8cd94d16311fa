"""What micro-batches of a node have on activation servers: how it leaves, and how it comes back.

The memory behind a piece of the stash travels as it is, and its values are views of it again when
it is back, with the strides that they had: bits of kernels may depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from waferstream.core.messages.messages import Message, StashReady, StashReleased, StashWanted
from waferstream.core.messages.payload import Arena, Payload, Slab
from waferstream.core.program.trips import Trips
from waferstream.core.roles.names import activation_server_name

_HOST = torch.device("cpu")

Key = tuple[int, int]
"""Micro-batch and trip; a node has one step at a time."""


class Left(NamedTuple):
    """Memory that leaves a node."""

    key: Key
    slab: Slab


class _View(NamedTuple):
    """How a value lies in its memory, of which it has the number."""

    memory: int
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]
    is_conjugate: bool
    is_negative: bool

    def of(self, memory: torch.UntypedStorage) -> torch.Tensor:
        """Return the value in its memory."""
        value = torch.empty(0, dtype=self.dtype, device=memory.device)
        value.set_(memory, self.offset, self.size, self.stride)
        value = value.conj() if self.is_conjugate else value
        return torch._neg_view(value) if self.is_negative else value


class Packed(NamedTuple):
    """Values that are away: their views by name, and the bytes of each piece of memory."""

    views: Mapping[str, _View]
    sizes: tuple[int, ...]
    device: torch.device

    def pieces_of(self, payload: Payload) -> tuple[torch.Tensor, ...]:
        """Return the bytes of each piece of memory in a payload, which has one at least."""
        content = payload.view(torch.uint8)[: sum(self.sizes)]
        return torch.split(content, list(self.sizes))


def pack(values: Mapping[str, torch.Tensor], arena: Arena) -> tuple[Slab, Packed]:
    """Copy the memory behind values into a slab; return it, and what brings the values back."""
    memories: dict[int, torch.UntypedStorage] = {}
    views = {}
    for name, value in values.items():
        memory = value.untyped_storage()
        memories.setdefault(memory.data_ptr(), memory)
        views[name] = _View(
            list(memories).index(memory.data_ptr()),
            value.dtype,
            int(value.storage_offset()),
            value.size(),
            value.stride(),
            value.is_conj(),
            value.is_neg(),
        )
    sizes = tuple(memory.nbytes() for memory in memories.values())
    slab = arena.allocate(max(1, sum(sizes)))
    packed = Packed(views, sizes, next((value.device for value in values.values()), _HOST))
    for piece, memory in zip(packed.pieces_of(slab), memories.values(), strict=True):
        piece.copy_(_bytes_of(memory))
    return slab, packed


def unpack(packed: Packed, payload: Payload) -> dict[str, torch.Tensor]:
    """Return values in memory of their own, as they were when they were packed."""
    pieces = packed.pieces_of(payload)
    memories = [piece.to(packed.device, copy=True).untyped_storage() for piece in pieces]
    return {name: view.of(memories[view.memory]) for name, view in packed.views.items()}


def _bytes_of(memory: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory)


class StashExchange:
    """The messages of a node with activation servers: what has left, and what has come back."""

    def __init__(self, trips: Trips) -> None:
        self._trips = trips
        self._unreleased: dict[Key, Slab] = {}
        self._away: list[Key] = []  # of those that nobody has asked for
        self._back: dict[Key, Payload] = {}

    def leave(self, step: int, left: Iterable[Left]) -> Iterator[tuple[str, Message]]:
        """Yield the messages with which memory leaves, each with its receiver."""
        for key, slab in left:
            self._unreleased[key] = slab
            self._away.append(key)
            yield self._server(key), StashReady(step, *key, slab)

    def ask(self, step: int, segment: int) -> Iterator[tuple[str, Message]]:
        """Yield the requests for what a segment reads, and has left already."""
        for key in [key for key in self._away if self._trips.all[key[1]].before <= segment]:
            self._away.remove(key)
            yield self._server(key), StashWanted(step, *key)

    def release(self, key: Key) -> None:
        """Free the memory of what a server has copied."""
        self._unreleased.pop(key).free()

    def note(self, key: Key, payload: Payload) -> None:
        """Note what has come back."""
        self._back[key] = payload

    def back_before(self, segment: int, micro_batches: Sequence[int]) -> dict[Key, Payload]:
        """Return what has come back for a segment."""
        return {key: self._back[key] for key in self._keys(segment, micro_batches)}

    def missing(self, segment: int, micro_batches: Sequence[int]) -> tuple[str, ...]:
        """Return the servers that still have something that a segment reads."""
        keys = self._keys(segment, micro_batches)
        return tuple(sorted({self._server(key) for key in keys if key not in self._back}))

    def take(
        self, step: int, segment: int, micro_batches: Sequence[int]
    ) -> Iterator[tuple[str, Message]]:
        """Yield the credits for what came back for a segment, which has copied it."""
        for key in self._keys(segment, micro_batches):
            del self._back[key]
            yield self._server(key), StashReleased(step, *key)

    def _keys(self, segment: int, micro_batches: Sequence[int]) -> list[Key]:
        trips = self._trips.returning.get(segment, ())
        return [(micro_batch, trip) for micro_batch in micro_batches for trip in trips]

    def _server(self, key: Key) -> str:
        return activation_server_name(self._trips.server_of(key[1]))
