"""The link inside one process: mailboxes are queues, payloads are handed over as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch

from swarmx.links.failures import peer_gone, stalled, unknown_room
from wsc.core.messages import Envelope


class MemorySlab:
    """A payload of this process. Reading it after ``free`` is an error, not an old value."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._bytes: torch.Tensor | None = torch.empty(num_bytes, dtype=torch.uint8)

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """All bytes as a flat tensor that shares memory with the slab."""
        if self._bytes is None:
            raise RuntimeError("a slab was read after it was freed")
        return self._bytes.view(dtype)

    def free(self) -> None:
        """Give the memory back; RuntimeError if that was done before."""
        if self._bytes is None:
            raise RuntimeError("a slab was freed twice")
        self._bytes = None


class MemoryArena:
    """Slabs from this process' allocator, which aligns to 64 bytes and reuses by itself."""

    def allocate(self, num_bytes: int) -> MemorySlab:
        """A slab of ``num_bytes``, contents undefined."""
        return MemorySlab(num_bytes)

    def close(self) -> None:
        """Nothing to do: tensors go when nobody holds them."""


class MemoryPost:
    """The mailboxes of rooms that live in one process and take turns."""

    def __init__(self) -> None:
        self._mailboxes: dict[str, deque[Envelope]] = {}
        self._closed: list[str] = []

    def open(self, room: str) -> MemoryEndpoint:
        """The endpoint of a new room; ValueError if the name is taken."""
        if room in self._mailboxes:
            raise ValueError(f"room {room!r} is open already")
        self._mailboxes[room] = deque()
        return MemoryEndpoint(room, self)

    def deliver(self, envelope: Envelope) -> None:
        """Put a message into its target's mailbox."""
        source, target = envelope.source, envelope.target
        if target in self._closed:
            raise peer_gone(source, target)
        if target not in self._mailboxes:
            raise unknown_room(source, target)
        self._mailboxes[target].append(envelope)

    def collect(self, room: str, timeout_s: float) -> Envelope:
        """The oldest message for a room.

        Rooms of one process run one at a time, so an empty mailbox stays empty however long its
        owner waits.
        """
        if self._mailboxes[room]:
            return self._mailboxes[room].popleft()
        if self._closed:
            raise peer_gone(room, self._closed[0])
        raise stalled(room, timeout_s)

    def pending(self, room: str) -> int:
        """Messages that wait for a room."""
        return len(self._mailboxes[room])

    def close(self, room: str) -> None:
        """Take a room's mailbox away."""
        if self._mailboxes.pop(room, None) is not None:
            self._closed.append(room)


class MemoryEndpoint:
    """One room's mailbox at a post."""

    def __init__(self, name: str, post: MemoryPost) -> None:
        self.name = name
        self.address = name
        self._post = post

    def connect(self, directory: Mapping[str, str]) -> None:
        """Nothing to do: a room reaches every other room of its post."""

    @property
    def pending(self) -> int:
        """Messages that wait to be received."""
        return self._post.pending(self.name)

    def send(self, envelope: Envelope) -> None:
        """Hand over a message."""
        self._post.deliver(envelope)

    def receive(self, timeout_s: float) -> Envelope:
        """The oldest message; fails at once if there is none."""
        return self._post.collect(self.name, timeout_s)

    def close(self) -> None:
        """Close for good; peers notice."""
        self._post.close(self.name)
