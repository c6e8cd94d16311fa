"""Pruning of one matrix at once: algorithm 1 of SparseGPT.

Frantar and Alistarh 2023, arXiv:2301.00774.
"""

from __future__ import annotations

import torch

from memoryx.sparsity.patterns import top
from waferstream.core.sparsity.spec import kept_of

DAMPING = 0.01
"""Share of the mean diagonal that is added to the Hessian (appendix A)."""

BLOCK_COLUMNS = 128
"""Columns whose mask is chosen at a time, and whose errors are added up (section 3.4)."""


def pruned_matrix(
    weight: torch.Tensor, gram: torch.Tensor, share: float, block_columns: int = BLOCK_COLUMNS
) -> tuple[torch.Tensor, torch.Tensor]:
    """Prune one matrix by algorithm 1 of the paper.

    Column by column, a pruned weight w leaves the error w / [H^-1]_jj, for which the columns behind
    it make up; [H^-1] is the inverse of the Hessian of the columns from j on, so one Cholesky
    factor of the whole inverse has what every column needs (section 3.2).

    Args:
        weight: (outputs, inputs).
        gram: (inputs, inputs), fp64: sum of x x^T over the inputs x of the layer.
        share: The share of zeros; each block of columns has it, to one weight.
        block_columns: Columns whose mask is chosen at a time.

    Returns:
        The pruned matrix in fp64, and its mask.
    """
    values, factor = weight.to(torch.float64, copy=True), _factor(gram)
    mask = torch.ones_like(values, dtype=torch.bool)
    rows, columns = values.shape
    all_kept, kept_before = kept_of(values.numel(), share), 0
    for first in range(0, columns, block_columns):
        last = min(first + block_columns, columns)
        block, own = values[:, first:last], factor[first:last, first:last]
        kept = all_kept * last // columns
        score = (block / own.diagonal()).square()
        # The copy is contiguous, as a block of columns is not.
        mask[:, first:last] = top(score.flatten(), kept - kept_before).view(rows, -1)
        kept_before = kept
        errors = _prune_block(block, mask[:, first:last], own)
        values[:, last:] -= errors @ factor[first:last, last:]
    return values.masked_fill_(~mask, 0.0), mask


def _prune_block(block: torch.Tensor, mask: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Prune some columns in place; return their errors, for which the columns behind make up."""
    errors = torch.zeros_like(block)
    for column in range(block.shape[1]):
        error = block[:, column] / factor[column, column]
        errors[:, column] = error.masked_fill(mask[:, column], 0.0)
        block[:, column:] -= torch.outer(errors[:, column], factor[column, column:])
    return errors


def _factor(gram: torch.Tensor) -> torch.Tensor:
    """Return the upper Cholesky factor of the inverse of the damped Hessian.

    Without any input (a layer that reads zeros alone) all weights cost the same.
    """
    mean = float(gram.diagonal().mean())
    hessian = gram + (DAMPING * mean or 1.0) * torch.eye(len(gram)).to(gram)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    factor: torch.Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor
