"""Functions of torch in a form that can be traced, where their usual one cannot.

``gaussian_nll_loss`` raises ValueError for a negative variance, and a traced tensor has no value to
compare. Here such a variance gives NaN, which ends the run like any other loss that is not finite.

``lstm`` is one op of oneDNN on a CPU. Without oneDNN it is a loop over time of ops with kernels.

``cross_entropy`` and ``nll_loss`` take class numbers in every integer type: programs for the real
machine send them in 32 bits.

``ctc_loss`` is that of ``waferstream.compiler.capture.ctc``, and
``waferstream.compiler.capture.traceable_modules`` has the modules that no function stands for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from waferstream.compiler.capture.ctc import ctc_loss
from waferstream.compiler.capture.traceable_modules import traceable_modules

_LOSSES_OF_CLASSES = (functional.cross_entropy, functional.nll_loss)
_INTEGERS = (torch.int32, torch.int16, torch.int8)


class TraceableForms(TorchFunctionMode):
    """Replaces functions that cannot be traced by the same arithmetic."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _LOSSES_OF_CLASSES:
            return _with_long_target(func, *args, **kwargs or {})
        if func is functional.gaussian_nll_loss:
            return gaussian_nll_loss(*args, **kwargs or {})
        if func in (functional.ctc_loss, torch.ctc_loss):
            return ctc_loss(*args, **kwargs or {})
        if getattr(func, "__name__", None) == "lstm":
            with without_onednn():
                return func(*args, **kwargs or {})
        return func(*args, **kwargs or {})


@contextmanager
def traceable_forms() -> Iterator[None]:
    """Replace functions and modules that cannot be traced inside the block."""
    with TraceableForms(), traceable_modules():
        yield


@contextmanager
def without_onednn() -> Iterator[None]:
    """Keep torch from oneDNN inside the block."""
    before: bool = torch._C._get_mkldnn_enabled()  # torch.backends.mkldnn.flags warns of TF32
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _with_long_target(
    loss: Any, input: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Return a loss whose class numbers have the type that torch's kernels take."""
    wide = target.long() if target.dtype in _INTEGERS else target
    result: torch.Tensor = loss(input, wide, *args, **kwargs)
    return result


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the loss of torch's function of that name, with the same ops in the same order.

    Arguments are as there. A variance lacks the last dimension of ``input``, or has 1 there, where
    samples share it.
    """
    variance = torch.full_like(input, var) if isinstance(var, float) else var
    if variance.shape == input.shape[:-1] and variance.shape != input.shape:
        variance = variance.unsqueeze(-1)
    clamped = variance.clone()
    with torch.no_grad():
        clamped.clamp_(min=eps)
        clamped.masked_fill_(variance < 0, math.nan)
    loss = 0.5 * (torch.log(clamped) + (input - target) ** 2 / clamped)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss
