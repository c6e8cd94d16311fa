"""One matrix is pruned as algorithm 1 of SparseGPT says."""

from __future__ import annotations

import pytest
import torch

from cstorch.sparse.matrix_pruning import DAMPING, pruned_matrix
from waferstream.core.sparsity.spec import kept_of


def problem(rows: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a weight, and the sum of x x^T over inputs whose features depend on each other."""
    random = torch.Generator().manual_seed(seed)
    mixed = torch.randn(columns, columns, generator=random, dtype=torch.float64)
    inputs = torch.randn(3 * columns, columns, generator=random, dtype=torch.float64) @ mixed
    return torch.randn(rows, columns, generator=random), inputs.t() @ inputs


def error_of(change: torch.Tensor, gram: torch.Tensor) -> float:
    """Return the squared change of all outputs."""
    return float(((change @ gram) * change).sum())


def without(row: torch.Tensor, column: int, hessian: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Set one weight to zero; return the least error by changes of those behind it, and the row.

    By the normal equations of these columns alone.
    """
    change = torch.zeros_like(row)
    change[column] = -row[column]
    behind = slice(column + 1, None)
    if column + 1 < len(row):
        right = -hessian[behind, column] * change[column]
        change[behind] = torch.linalg.solve(hessian[behind, behind], right)
    return error_of(change[None], hessian), row + change


def test_one_zero_is_that_of_exhaustive_search() -> None:
    """Each weight is tried, with the exact solution for the columns behind it."""
    for seed in range(4):
        weight, gram = problem(1, 8, seed)
        hessian = gram + DAMPING * gram.diagonal().mean() * torch.eye(8, dtype=gram.dtype)
        tried = [without(weight[0].double(), column, hessian) for column in range(8)]
        best = min(range(8), key=lambda column: tried[column][0])
        pruned, mask = pruned_matrix(weight, gram, 1 / 8)
        assert (~mask[0]).nonzero().tolist() == [[best]]
        torch.testing.assert_close(pruned[0], tried[best][1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("block_columns", [3, 12])
def test_weights_are_those_of_one_exact_step_per_zero(block_columns: int) -> None:
    """From left to right, whatever the block of columns whose errors are added up."""
    weight, gram = problem(5, 12)
    hessian = gram + DAMPING * gram.diagonal().mean() * torch.eye(12, dtype=gram.dtype)
    pruned, mask = pruned_matrix(weight, gram, 0.5, block_columns)
    for row, kept, found in zip(weight.double(), mask, pruned, strict=True):
        for column in (~kept).nonzero().flatten().tolist():
            _, row = without(row, column, hessian)  # noqa: PLW2901
        torch.testing.assert_close(found, row.masked_fill(~kept, 0.0), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("share", "bound"), [(0.25, 0.2), (0.5, 0.25), (0.75, 0.5), (0.9, 0.95)])
def test_outputs_change_less_than_by_magnitude(share: float, bound: float) -> None:
    """On inputs with a few common factors, as activations have; the number of zeros is exact."""
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        factors, mixing, own = (
            torch.randn(*shape, generator=random, dtype=torch.float64)
            for shape in ((200, 10), (10, 64), (200, 64))
        )
        weight, inputs = torch.randn(16, 64, generator=random), factors @ mixing + 0.3 * own
        gram, kept = inputs.t() @ inputs, kept_of(weight.numel(), share)
        pruned, mask = pruned_matrix(weight, gram, share, block_columns=16)
        assert int(mask.sum()) == int((pruned != 0).sum()) == kept
        smallest = weight.abs().flatten().argsort()[: weight.numel() - kept]
        by_magnitude = weight.double().flatten().index_fill(0, smallest, 0.0).view_as(weight)
        found = error_of(pruned - weight, gram) / error_of(by_magnitude - weight, gram)
        assert found < bound


def test_extreme_shares_and_inputs() -> None:
    weight, gram = problem(3, 5)
    assert torch.equal(pruned_matrix(weight, gram, 0.0)[0], weight.double())
    assert not pruned_matrix(weight, gram, 1.0)[0].any()
    by_magnitude, mask = pruned_matrix(weight, torch.zeros_like(gram), 0.6)
    assert torch.equal(by_magnitude[mask], weight.double()[mask])  # inputs are zero: all cost alike
    assert weight.abs()[mask].min() > weight.abs()[~mask].max()
