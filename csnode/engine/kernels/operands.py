"""Operands of the kernels: their types, and tensors as tokens by features."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from waferstream.core.errors import ApplianceCompilationError

Tensor = torch.Tensor


def check_type(x: Tensor) -> None:
    """Raise ApplianceCompilationError for operands that PEs do not multiply."""
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ApplianceCompilationError(
            "operands of the engine must have 16 or 32 bits",
            code="engine-operand-type",
            value=x.dtype,
            rule="float32, float16 or bfloat16",
            remedy="remove the cast from the model, or use runtime.engine: torch",
        )


def as_tokens(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor as [tokens, features], its last dimensions ``shape`` flattened."""
    return x.reshape(-1, prod(shape))
