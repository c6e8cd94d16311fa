"""What a message carries: bytes that a role writes and reads, wherever they are.

A role never knows what is behind a payload: a tensor of this process, a slab of shared memory,
or bytes that came over the network. It allocates slabs from the ``Arena`` it was given, fills
them, sends them inside messages, and frees them when the readers' credits are back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Payload(Protocol):
    """Bytes that can be looked at as a tensor, in place."""

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """All bytes as a flat tensor that shares memory with the payload."""


class Slab(Payload, Protocol):
    """A payload that this process owns and will get back."""

    def free(self) -> None:
        """Give the memory back to its arena. Freeing twice is an error."""


class Arena(Protocol):
    """Where a role takes the memory for what it sends."""

    def allocate(self, num_bytes: int) -> Slab:
        """A slab of at least one byte, 64-byte aligned, contents undefined."""

    def close(self) -> None:
        """Release everything; payloads handed out before become invalid."""
