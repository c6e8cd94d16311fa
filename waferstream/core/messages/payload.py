"""Payloads of messages: bytes that roles write and read, wherever they are.

A role does not know whether a payload is a tensor of this process, a slab of shared memory, or
bytes that came over the network. It allocates slabs from its ``Arena``, fills them, sends them in
messages, and frees them when the credits of all readers are back. Several tensors lie in
one payload one after the other, in the order of their specs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from waferstream.core.program.program import TensorSpec

if TYPE_CHECKING:
    import torch

ALIGNMENT_BYTES = 64
"""Slabs begin at multiples of this, as torch's tensors do: a cache line, and a vector register."""

DEVICE_ALIGNMENT_BYTES = 256
"""The same on a GPU, whose library of products asks for the alignment up to this."""


class Payload(Protocol):
    """Bytes that can be viewed as a tensor, in place."""

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return all bytes as a flat tensor that shares memory with the payload."""


class Slab(Payload, Protocol):
    """A payload that this process owns and frees."""

    def free(self) -> None:
        """Return the memory to its arena. Freeing twice is an error."""


class Arena(Protocol):
    """The memory from which a role allocates its slabs."""

    def allocate(self, num_bytes: int) -> Slab:
        """Allocate a slab of at least one byte, aligned to ``ALIGNMENT_BYTES``, contents undefined.

        Any thread may call.
        """

    def take_back_all(self) -> None:
        """Take back every slab, freed or not; nobody may read or free one of them any more."""

    def close(self) -> None:
        """Release everything; payloads handed out before become invalid."""


def payload_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the size of a payload that holds these tensors."""
    return sum(spec.num_bytes for spec in specs)


def unpack(flat: torch.Tensor, specs: Sequence[TensorSpec]) -> Iterator[torch.Tensor]:
    """Yield views of a flat tensor of one dtype, one per spec."""
    start = 0
    for spec in specs:
        yield flat[start : start + spec.num_elements].view(spec.shape)
        start += spec.num_elements


def is_aligned(tensor: torch.Tensor) -> bool:
    """Return whether a tensor begins at an address at which a tensor of its own would begin.

    One behind others in a payload may not. Bits of matrix products depend on it: MKL takes other
    kernels for products of one row or column, and for results, at odd addresses; cuBLASLt chooses
    by the alignment of each operand.
    """
    is_here = tensor.device.type == "cpu"
    return tensor.data_ptr() % (ALIGNMENT_BYTES if is_here else DEVICE_ALIGNMENT_BYTES) == 0


def byte_ranges(specs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, int, int]]:
    """Yield each tensor with its start and stop byte, for payloads of mixed dtypes."""
    start = 0
    for spec in specs:
        stop = start + spec.num_bytes
        yield spec, start, stop
        start = stop
