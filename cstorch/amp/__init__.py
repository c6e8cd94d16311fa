"""Mixed precision: fp32 masters in MemoryX, weights streamed in half precision."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import torch

from cstorch import flags
from cstorch.amp.grad_scaler import GradScaler
from cstorch.optim.optimizer import Optimizer
from waferstream.compiler.capture.autocast import autocast as wafer_autocast
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import NAMES, StreamPrecision, dtype_in_program

__all__ = ["GradScaler", "autocast", "optimizer_step"]

HalfType = Literal["bfloat16", "float16"]
_HALF_TYPES: dict[torch.dtype, HalfType] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def set_half_dtype(value: str | torch.dtype) -> torch.dtype:
    """Stream weights in a half type: ``bfloat16``, ``float16`` or ``cbfloat16``.

    Returns:
        The type to use in the model: torch's, or float16 in place of cbfloat16.

    Raises:
        ConfigError: There is no such half type.
    """
    try:
        name = NAMES.get(value, str(value)) if isinstance(value, torch.dtype) else value
        flags.amp.half_dtype = name  # type: ignore[assignment]  # checked when it is assigned
    except ConfigError as error:
        raise ConfigError(
            "the half dtype must be bfloat16, float16 or cbfloat16",
            code="unknown-half-dtype",
            where="cstorch.amp.set_half_dtype",
            value=value,
        ) from error
    return get_half_dtype()


def get_half_dtype_str() -> str:
    """Return the name of the half dtype."""
    return flags.amp.half_dtype


def get_half_dtype() -> torch.dtype:
    """Return the half dtype to use in a model; float16 stands for cbfloat16."""
    return dtype_in_program(flags.amp.half_dtype)


def is_cbfloat16_tensor(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of a model holds cbfloat16, for which float16 stands."""
    return flags.amp.half_dtype == "cbfloat16" and tensor.dtype == get_half_dtype()


def mixed_precision() -> bool:
    """Return whether half precision is on."""
    return flags.amp.enabled


def get_floating_point_dtype_str() -> str:
    """Return the name of the dtype of streamed weights: the half dtype, or ``float32``."""
    return flags.amp.half_dtype if flags.amp.enabled else "float32"


def get_floating_point_dtype() -> torch.dtype:
    """Return the dtype of streamed weights as torch has it."""
    return dtype_in_program(get_floating_point_dtype_str())


def enable_mixed_precision(enabled: bool = True) -> None:
    """Switch half precision on, or off for fp32 throughout."""
    flags.amp.enabled = enabled


def stream_precision(model: torch.nn.Module | None = None) -> StreamPrecision:
    """Return the dtypes that follow from settings and ``csx.precision.optimization_level``.

    A model that is in a half type itself streams in it. Without mixed precision it also computes as
    it is, without casts.
    """
    own = None if model is None else half_type_of(model)
    if not flags.amp.enabled:
        return StreamPrecision(own or "float32", own or "float32", casts=own is None)
    half, level = flags.amp.half_dtype, flags.csx.precision.optimization_level
    if own is not None and dtype_in_program(half) != dtype_in_program(own):
        half = own
    return StreamPrecision(
        half,
        half if level > 0 else "float32",
        softmax_in_half=level == 2,
        rounding="stochastic" if flags.csx.precision.stochastic_rounding else "nearest",
    )


def half_type_of(model: torch.nn.Module) -> HalfType | None:
    """Return the half type of a model that is in it as a whole, None for any other model."""
    types = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return _HALF_TYPES.get(types.pop()) if len(types) == 1 else None


def autocast() -> AbstractContextManager[object]:
    """Return the context in which functions cast their operands as on the cluster.

    A traced step runs in it anyway. A plain PyTorch loop on weights in the half dtype uses it to
    compute what the cluster computes; the rules are those of
    ``waferstream.compiler.capture.autocast``.
    """
    return wafer_autocast(stream_precision())


def optimizer_step(
    loss: torch.Tensor,
    optimizer: Optimizer,
    grad_scaler: GradScaler,
    max_gradient_norm: float | None = None,
    max_gradient_value: float | None = None,
) -> None:
    """Run backward pass, clipping, update and ``zero_grad`` in the order of MemoryX."""
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if max_gradient_value is not None:
        torch.nn.utils.clip_grad_value_(parameters, max_gradient_value)
    if max_gradient_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, max_gradient_norm)
    grad_scaler.step(optimizer)
    grad_scaler.update()
    optimizer.zero_grad()
