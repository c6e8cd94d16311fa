"""The memory of a weight store: where its masters and optimizer state lie."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Protocol

import numpy as np
import torch

from memoryx.optim.rule import Shape
from waferstream.core.program.program import MASTER_BYTES

_ALIGNMENT_BYTES = 64  # a cache line


class Memory(Protocol):
    """Memory for fp32 tensors, all of which or only some of which are in DRAM at a time."""

    @property
    def is_bounded(self) -> bool:
        """Whether only some of the tensors are in DRAM at a time."""

    @property
    def copy_limit_bytes(self) -> int | None:
        """The DRAM that copies of changed tensors may take during a save; None for any."""

    def allocate(self, shapes: Sequence[Shape]) -> list[torch.Tensor]:
        """Return tensors of zeros, in memory that is free again when all of them are discarded."""

    def use(self, tensors: Iterable[torch.Tensor]) -> None:
        """Make room in DRAM for whole tensors that are about to be read or written."""

    def expect(self, tensors: Iterable[torch.Tensor]) -> None:
        """Begin to read whole tensors that will be used next, if there is room for them."""

    def let_go(self, content: torch.Tensor) -> None:
        """Note that a part of a tensor was read in passing, perhaps by another thread."""

    def discard(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note that tensors are not used any more."""


class Dram:
    """All tensors are in DRAM."""

    is_bounded = False
    copy_limit_bytes = None

    def allocate(self, shapes: Sequence[Shape]) -> list[torch.Tensor]:
        starts, total_bytes = laid_out(shapes, _ALIGNMENT_BYTES)
        return views_at(_untouched(total_bytes // MASTER_BYTES), starts, shapes)

    def use(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do nothing."""

    def expect(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do nothing."""

    def let_go(self, content: torch.Tensor) -> None:
        """Do nothing."""

    def discard(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do nothing."""


class Made(Mapping[str, torch.Tensor]):
    """Tensors by name, each of which is made, or brought into DRAM, when it is read."""

    def __init__(self, names: Collection[str], make: Callable[[str], torch.Tensor]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _untouched(num_elements: int) -> torch.Tensor:
    """Return zeros whose pages take memory when they are first written.

    ``torch.zeros`` writes all of them; a state that is packed before its first update needs none.
    """
    spare = _ALIGNMENT_BYTES // MASTER_BYTES
    flat = np.zeros(num_elements + spare, np.float32)
    first = -(flat.ctypes.data // MASTER_BYTES) % spare
    return torch.from_numpy(flat[first : first + num_elements])


def laid_out(shapes: Sequence[Shape], alignment_bytes: int) -> tuple[list[int], int]:
    """Return the first byte of each fp32 tensor of these shapes, one after the other, and the end.

    Every tensor begins at a multiple of ``alignment_bytes``.
    """
    sizes = (
        -(-prod(shape) * MASTER_BYTES // alignment_bytes) * alignment_bytes for shape in shapes
    )
    *starts, total_bytes = accumulate(sizes, initial=0)
    return starts, total_bytes


def views_at(
    flat: torch.Tensor, starts: Sequence[int], shapes: Sequence[Shape]
) -> list[torch.Tensor]:
    """Return views of a flat fp32 tensor that begin at these bytes."""
    places = ((start // MASTER_BYTES, shape) for start, shape in zip(starts, shapes, strict=True))
    return [flat[first : first + prod(shape)].view(shape) for first, shape in places]
