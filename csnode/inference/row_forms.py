"""Products and functions in forms that give a row its bits in any company.

- ``linear`` of torch gives a row other bits with 1, with 2 to 3 and with more rows; oneDNN's
  product over a packed weight does not. It is in fp32, in which products of bf16 are exact, as
  many processors have no other.
- Functions such as ``silu`` give the elements after the last whole vector of a tensor other bits,
  so rows are padded to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from csnode.lanes import single_threaded

_LANES = 64
"""A multiple of the elements of a vector, on any processor of torch."""


def packed_product(
    weight: torch.Tensor, bias: torch.Tensor | None = None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the product of rows (N, inputs) with a weight (outputs, inputs)."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().contiguous())
    return partial(
        _product, packed, None if bias is None else bias.detach().to(torch.float, copy=True)
    )


def _product(packed: torch.Tensor, bias: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
        rows.float(), packed, bias, "none", [], ""
    )
    return product.to(rows.dtype)


def packed_expert_product(
    weight: torch.Tensor,
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the product of rows (N, inputs), sorted by expert, with (E, outputs, inputs).

    Its second argument is the end of each expert's rows, (E,).
    """
    products = [packed_product(matrix) for matrix in weight]
    num_outputs = weight.shape[1]

    def product(rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        found, start = rows.new_empty(len(rows), num_outputs), 0
        for of_expert, end in zip(products, ends.tolist(), strict=True):
            if end > start:
                found[start:end] = of_expert(rows[start:end])
            start = end
        return found

    return product


def in_whole_vectors(
    func: Callable[..., torch.Tensor], x: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Return a function of each element, none of which is in the rest after the last vector.

    Where that rest begins depends on the number of rows and threads.
    """
    width = x.shape[-1]
    with single_threaded():
        found = func(F.pad(x, (0, -width % _LANES)), *args, **kwargs)
    return found[..., :width]
