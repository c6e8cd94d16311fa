"""Functions and modules of torch in a form that can be traced, where their usual one cannot.

``gaussian_nll_loss`` raises ValueError for a negative variance, and a traced tensor has no value to
compare. Here such a variance gives NaN, which ends the run like any other loss that is not finite.

``lstm`` is one op of oneDNN on a CPU. Without oneDNN it is a loop over time of ops with kernels.

``cross_entropy`` and ``nll_loss`` take class numbers in every integer type: programs for the real
machine send them in 32 bits.

What a function writes to ``out=``, it returns and a copy writes.

``ctc_loss`` is that of ``waferstream.compiler.capture.ctc``, and ``masked_select`` of labels waits
for it (``waferstream.compiler.capture.selected_labels``). Rows that a program takes apart and
joins again stay together (``waferstream.compiler.capture.kept_rows``).

``AdaptiveLogSoftmaxWithLoss`` selects the rows of each cluster of classes, whose number depends on
the targets. Here every cluster computes all rows, and a mask selects.

``CrossMapLRN2d`` writes into tensors without a shape. Here sums over windows of channels are
products with constant matrices. Its windows are those that torch's loops have: channel 0 is in
every window, and the gradient is not the derivative. Both are kept, since a plain loop has them.

``Module.to`` replaces every parameter, also by itself, and a traced parameter cannot be replaced.
Here those that are as asked for stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from waferstream.compiler.capture.ctc import ctc_loss
from waferstream.compiler.capture.kept_rows import KeptRows
from waferstream.compiler.capture.selected_labels import SelectedLabels, can_select

_LOSSES_OF_CLASSES = (functional.cross_entropy, functional.nll_loss)
_INTEGERS = (torch.int32, torch.int16, torch.int8)

_APPLY: Callable[..., nn.Module] = nn.Module._apply


class TraceableForms(TorchFunctionMode):
    """Replaces functions that cannot be traced by the same arithmetic."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if isinstance((kwargs or {}).get("out"), torch.Tensor) and not torch.is_grad_enabled():
            return _copied_to(func, *args, **kwargs)
        if func in _LOSSES_OF_CLASSES:
            return _with_long_target(func, *args, **kwargs or {})
        if func is functional.gaussian_nll_loss:
            return gaussian_nll_loss(*args, **kwargs or {})
        if func in (functional.ctc_loss, torch.ctc_loss):
            return ctc_loss(*args, **kwargs or {})
        if func in (torch.masked_select, torch.Tensor.masked_select) and can_select(*args):
            return SelectedLabels(*args)
        is_lstm = getattr(func, "__name__", None) == "lstm"
        with without_onednn() if is_lstm else nullcontext():
            return func(*args, **kwargs or {})


@contextmanager
def traceable_forms() -> Iterator[None]:
    """Replace functions and modules that cannot be traced inside the block."""
    with TraceableForms(), KeptRows(), traceable_modules():
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


def _copied_to(func: Any, *args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """Write what a function returns to a tensor, as ``out=`` does, which a graph does not say."""
    result = func(*args, **kwargs)
    return (out if out.shape == result.shape else out.resize_(result.shape)).copy_(result)


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


class _AdaptiveOutput(NamedTuple):
    """Result of ``AdaptiveLogSoftmaxWithLoss``."""

    output: torch.Tensor
    loss: torch.Tensor


@contextmanager
def traceable_modules() -> Iterator[None]:
    """Let modules of these classes compute in the form of this module inside the block."""
    adaptive = nn.AdaptiveLogSoftmaxWithLoss
    with ExitStack() as stack:
        stack.enter_context(patch.object(adaptive, "forward", adaptive_log_softmax))
        stack.enter_context(patch.object(adaptive, "predict", likeliest_classes))
        stack.enter_context(patch.object(nn.CrossMapLRN2d, "forward", cross_map_lrn))
        stack.enter_context(patch.object(nn.Module, "_apply", apply_where_changed))
        yield


def adaptive_log_softmax(
    module: nn.AdaptiveLogSoftmaxWithLoss, input: torch.Tensor, target: torch.Tensor
) -> _AdaptiveOutput:
    """Compute the module's ``forward``: log probabilities of the targets, and the loss.

    A target that is no class gives NaN, which ends the run like any other loss that is not finite.

    Raises:
        ValueError: The shapes do not fit.
    """
    if target.dim() > 1 or input.shape[:-1] != target.shape:
        raise ValueError(
            "input and target must have the shapes (N, in_features) and (N), or (in_features) and "
            f"(); got {tuple(input.shape)} and {tuple(target.shape)}"
        )
    rows, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1)
    bounds = list(zip(module.cutoffs[:-1], module.cutoffs[1:], strict=True))
    place = classes
    local: torch.Tensor | float = 0.0
    for index, (low, high) in enumerate(bounds):
        inside = (classes >= low) & (classes < high)
        place = torch.where(inside, module.shortlist_size + index, place)
        scores = functional.log_softmax(module.tail[index](rows), dim=1)
        chosen = _chosen(scores, (classes - low).clamp(0, high - low - 1))
        local = torch.where(inside, chosen, local)
    head = functional.log_softmax(module.head(rows), dim=1)
    output = local + _chosen(head, place.clamp(0, module.head_size - 1))
    output = output.masked_fill((classes < 0) | (classes >= module.n_classes), math.nan)
    loss = (-output).mean()
    return _AdaptiveOutput(output.reshape(target.shape), loss)


def likeliest_classes(module: nn.AdaptiveLogSoftmaxWithLoss, input: torch.Tensor) -> torch.Tensor:
    """Compute the module's ``predict``: the class with the highest probability."""
    return module.log_prob(input).argmax(dim=1)


def cross_map_lrn(module: nn.CrossMapLRN2d, input: torch.Tensor) -> torch.Tensor:
    """Compute the module's ``forward``: each channel divided by its window's norm.

    Raises:
        ValueError: The input is not a batch of images.
    """
    if input.dim() != 4:
        raise ValueError(f"input of CrossMapLRN2d must have 4 dimensions; got {input.dim()}")
    result: torch.Tensor = _CrossMapLrn.apply(  # type: ignore[no-untyped-call]
        input, module.size, module.alpha, module.beta, module.k
    )
    return result


def apply_where_changed(
    module: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> nn.Module:
    """Do what ``Module._apply`` does, apart from parameters that ``fn`` returns as they are."""
    every = module._parameters
    with torch.no_grad():
        changed = {name: each for name, each in every.items() if _is_changed(each, fn)}
    module.__dict__["_parameters"] = changed
    try:
        return _APPLY(module, fn, recurse)
    finally:
        module.__dict__["_parameters"] = every
        every.update(changed)  # with what took their places, if anything did


def _is_changed(parameter: torch.Tensor | None, fn: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Return whether ``fn`` makes another tensor of a parameter."""
    return parameter is not None and fn(parameter) is not parameter


class _CrossMapLrn(torch.autograd.Function):
    """Normalization over channels, with the windows of torch's function of that name."""

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, size: int, alpha: float, beta: float, k: float
    ) -> torch.Tensor:
        """Return input * (k + alpha / size * sum of squares in the window) ** -beta."""
        ahead = int((size - 1) / 2 + 1)
        to, of = _channels(input)
        window = (of < to + ahead) & ((of > to - ahead) | (of == 0))
        scale = _over_channels(window, input.square()) * (alpha / size) + k
        output = scale.pow(-beta) * input
        ctx.save_for_backward(input, output, scale)
        ctx.options = size, alpha, beta
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient as torch's loop has it."""
        input, output, scale = ctx.saved_tensors
        size, alpha, beta = ctx.options
        if size < 2:
            raise ValueError("CrossMapLRN2d of size 1 has no gradient in torch either")
        before = int(size - (size - 1) / 2)
        to, of = _channels(input)
        window = (of >= to - before) & (of < to - before + size)
        ratios = _over_channels(window, gradient * output / scale)
        result = scale.pow(-beta) * gradient - input * ratios * (2 * alpha * beta / size)
        return result, None, None, None, None


def _chosen(scores: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the score of each row at a place."""
    return scores.gather(1, places.unsqueeze(1)).squeeze(1)


def _channels(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of the channels as a column and as a row."""
    numbers = torch.arange(images.shape[1], device=images.device)
    return numbers.unsqueeze(1), numbers


def _over_channels(window: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return, for each row of the window, the sum of images over its channels."""
    return torch.matmul(window.to(images.dtype), images.flatten(2)).view_as(images)
