"""Several tensors in one payload: one after the other, in the order of their specs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wsc.core.program import TensorSpec

if TYPE_CHECKING:
    import torch


def packed_bytes(specs: Sequence[TensorSpec]) -> int:
    """Size of a payload that holds these tensors."""
    return sum(spec.num_bytes for spec in specs)


def unpack(flat: torch.Tensor, specs: Sequence[TensorSpec]) -> Iterator[torch.Tensor]:
    """Views of a flat tensor of one dtype, one per spec."""
    start = 0
    for spec in specs:
        yield flat[start : start + spec.num_elements].view(spec.shape)
        start += spec.num_elements


def byte_ranges(specs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, int, int]]:
    """Start and stop byte of each tensor, for payloads of mixed dtypes."""
    start = 0
    for spec in specs:
        stop = start + spec.num_bytes
        yield spec, start, stop
        start = stop
