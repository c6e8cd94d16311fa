"""Functions that plain PyTorch lacks."""

from __future__ import annotations

import torch

from waferstream_compat.functional import sparse_act_matmul, sparse_matmul


def test_sparse_matmul_picks_the_matrix_of_each_row() -> None:
    torch.manual_seed(0)
    rows, weight = torch.randn(2, 3, 2, 4), torch.randn(5, 6, 4)
    indices = torch.randint(0, 6, (2, 3, 2))
    expected = torch.einsum("bski,bskoi->bsko", rows, weight.transpose(0, 1)[indices])
    torch.testing.assert_close(sparse_matmul(rows, indices, weight), expected)


def test_sparse_act_matmul_zeroes_rows_without_a_mask() -> None:
    rows, weight = torch.randn(1, 3, 4), torch.randn(2, 4)
    result = sparse_act_matmul(rows, torch.tensor([[1, 0, 1]], dtype=torch.int16), weight)
    torch.testing.assert_close(result[0, [0, 2]], rows[0, [0, 2]] @ weight.T)
    assert not result[0, 1].any()
