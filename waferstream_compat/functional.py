"""Functions of the vendor's ``nn.functional`` and ``nn`` that plain PyTorch lacks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import one_hot

from cstorch.sparse.selective_grad import SelectiveGrad

__all__ = ["SelectiveGrad", "SmoothL1Loss", "one_hot", "sparse_act_matmul", "sparse_matmul"]

SmoothL1Loss = nn.SmoothL1Loss


def sparse_matmul(
    input: torch.Tensor,
    indices: torch.Tensor,
    weight: torch.Tensor,
) -> torch.Tensor:
    """Multiply each row by the matrix that its index selects.

    The shapes of a program are static, so that every row is multiplied by every matrix, and the
    products with other matrices are dropped; the emulated time includes them.

    Args:
        input: Rows, of shape (..., in_features).
        indices: The matrix of each row, of shape (...).
        weight: Matrices of shape (out_features, number, in_features).

    Returns:
        Rows of shape (..., out_features).
    """
    products = torch.einsum("...i,oei->...eo", input, weight)
    chosen = one_hot(indices.long(), weight.shape[1]).to(products.dtype)
    return torch.einsum("...eo,...e->...o", products, chosen)


def sparse_act_matmul(
    input: torch.Tensor,
    mask: torch.Tensor,
    weight: torch.Tensor,
    dense_capacity: int | None = None,  # noqa: ARG001  (a bound for the vendor's kernel)
) -> torch.Tensor:
    """Multiply the rows whose mask is not zero by a matrix; the others become zero.

    Args:
        input: Rows, of shape (..., in_features).
        mask: Which rows count, of shape (...).
        weight: Matrix of shape (out_features, in_features).
        dense_capacity: Accepted without effect.
    """
    return nn.functional.linear(input, weight) * (mask != 0).to(input.dtype).unsqueeze(-1)
