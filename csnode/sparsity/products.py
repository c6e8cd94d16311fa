"""Products with a sparse weight, computed from its non-zeros (torch.sparse, MKL).

Sums are fp32, in the order of the non-zeros of an output; operands of 16 bits are rounded once,
when a sum is complete. Rows are taken in blocks, whose transposed activations stay in the cache
(python -m benchmarks.sparsity.products). A block changes no sum of ``times``; sums over rows
(``sampled``) follow the blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property

import torch

from waferstream.core.sparsity.nonzeros import Index

BLOCK_ROWS = 64
SAMPLED_ROWS = 256

with warnings.catch_warnings():  # torch says once in a process that these tensors are new
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], (1, 1))


class Pattern:
    """Where a weight of two dimensions is not zero, as the products read it.

    It takes at most 12 bytes for each non-zero, and 4 for each row and column.
    """

    def __init__(self, index: Index, shape: tuple[int, int]) -> None:
        self.index, self.shape = index, shape

    @property
    def density(self) -> float:
        """The share of elements that are not masked."""
        return self.index.num_present / self.index.num_elements

    def rows(self, values: torch.Tensor) -> torch.Tensor:
        """Return the weight in compressed sparse rows; ``values`` are those of its non-zeros."""
        return torch.sparse_csr_tensor(*self._rows, values, self.shape, check_invariants=False)

    def columns(self, values: torch.Tensor) -> torch.Tensor:
        """Return the transposed weight in compressed sparse rows."""
        starts, places, order = self._columns
        shape = self.shape[::-1]
        chosen = values.index_select(0, order)
        return torch.sparse_csr_tensor(starts, places, chosen, shape, check_invariants=False)

    @cached_property
    def _rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = self._places
        return _starts(rows, self.shape[0]), columns.to(torch.int32)

    @cached_property
    def _columns(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows, columns = self._places
        order = torch.argsort(columns, stable=True)
        starts = _starts(columns, self.shape[1])
        return starts, rows[order].to(torch.int32), order.to(torch.int32)

    @property
    def _places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column of every non-zero, in the order of the elements."""
        places, inputs = self.index.places, self.shape[1]
        return places // inputs, places % inputs


def times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``x @ weight.T`` in fp32.

    Args:
        x: Activations of shape (rows, inputs), fp32 or a type of 16 bits.
        weight: Compressed sparse rows of shape (outputs, inputs), fp32.
    """
    rows, outputs = len(x), len(weight)
    product = torch.empty(rows, outputs)
    for start, stop in _blocks(rows, BLOCK_ROWS):
        turned = x[start:stop].float().t().contiguous()
        product[start:stop] = torch.mm(weight, turned).t()
    return product


def sampled(slope: torch.Tensor, x: torch.Tensor, pattern: Pattern) -> torch.Tensor:
    """Return the elements of ``slope.T @ x`` at the non-zeros of a weight, in fp32.

    Args:
        slope: Gradients of outputs, of shape (rows, outputs), fp32 or a type of 16 bits.
        x: Activations of shape (rows, inputs).
        pattern: Where the weight is not zero.
    """
    total = pattern.rows(torch.zeros(pattern.index.num_present))
    for start, stop in _blocks(len(x), SAMPLED_ROWS):
        left, right = slope[start:stop].float().t(), x[start:stop].float()
        torch.sparse.sampled_addmm(total, left, right, out=total)
    return total.values()


def _blocks(rows: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def _starts(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """Return where each number from 0 begins, if all are sorted, and the end."""
    starts = torch.zeros(count + 1, dtype=torch.int32)
    starts[1:] = torch.bincount(numbers, minlength=count).cumsum(0)
    return starts
