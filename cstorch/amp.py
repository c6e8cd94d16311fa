"""Mixed precision: fp32 masters in MemoryX, weights streamed in half precision."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from cstorch import flags
from cstorch.optim.optimizer import Optimizer
from cstorch.recorder import active_recorder
from wsc.compiler.autocast import autocast as wafer_autocast
from wsc.compiler.precision import DTYPES, StreamPrecision
from wsc.core.errors import ConfigError


def set_half_dtype(name: str) -> None:
    """Stream weights in ``bfloat16`` or ``float16``; ConfigError for anything else."""
    try:
        flags.amp.half_dtype = name  # type: ignore[assignment]  # checked when it is assigned
    except ConfigError as error:
        raise ConfigError(
            "the half dtype must be bfloat16 or float16", code="unknown-half-dtype", value=name
        ) from error


def get_half_dtype_str() -> str:
    """Return the name of the half dtype."""
    return flags.amp.half_dtype


def get_half_dtype() -> torch.dtype:
    """Return the half dtype as torch has it."""
    return DTYPES[flags.amp.half_dtype]


def get_floating_point_dtype_str() -> str:
    """Return the name of the dtype of streamed weights: the half dtype, or ``float32``."""
    return flags.amp.half_dtype if flags.amp.enabled else "float32"


def get_floating_point_dtype() -> torch.dtype:
    """Return the dtype of streamed weights as torch has it."""
    return DTYPES[get_floating_point_dtype_str()]


def enable_mixed_precision(enabled: bool = True) -> None:
    """Switch half precision on, or off for fp32 throughout."""
    flags.amp.enabled = enabled


def stream_precision() -> StreamPrecision:
    """Return the dtypes that follow from settings and ``csx.precision.optimization_level``."""
    if not flags.amp.enabled:
        return StreamPrecision("float32", "float32")
    half, level = flags.amp.half_dtype, flags.csx.precision.optimization_level
    return StreamPrecision(half, half if level > 0 else "float32", softmax_in_half=level == 2)


def autocast() -> AbstractContextManager[object]:
    """Return the context in which functions cast their operands as on the cluster.

    A traced step runs in it anyway. A plain PyTorch loop on weights in the half dtype uses it to
    compute what the cluster computes; the rules are those of ``wsc.compiler.autocast``.
    """
    return wafer_autocast(stream_precision())


class GradScaler:
    """A fixed loss scale: keeps small gradients of ``float16`` kernels from vanishing.

    MemoryX divides the gradients by the scale before it clips and applies them.
    """

    def __init__(self, loss_scale: float = 1.0) -> None:
        if isinstance(loss_scale, bool) or not isinstance(loss_scale, int | float):
            raise ConfigError(
                "the loss scale must be a number",
                code="loss-scale-not-a-number",
                where="cstorch.amp.GradScaler",
                value=loss_scale,
                rule="the scale is fixed for a run; a dynamic scale is not emulated",
                remedy="GradScaler(loss_scale=2.0**15), or half dtype bfloat16 without a scale",
            )
        if not loss_scale > 0:
            raise ConfigError(
                "the loss scale must be positive", code="loss-scale-not-positive", value=loss_scale
            )
        self.loss_scale = loss_scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss to call ``backward()`` on, scaled inside a traced step."""
        recorder = active_recorder.get()
        if recorder is None or self.loss_scale == 1.0:
            return loss
        recorder.scale_loss(self.loss_scale)
        return loss * self.loss_scale

    def get_scale(self) -> float:
        """Return the scale."""
        return self.loss_scale


def optimizer_step(
    loss: torch.Tensor,
    optimizer: Optimizer,
    grad_scaler: GradScaler,
    max_gradient_norm: float | None = None,
    max_gradient_value: float | None = None,
) -> None:
    """Run backward pass, clipping, update and ``zero_grad`` in the order of MemoryX."""
    grad_scaler.scale(loss).backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if max_gradient_value is not None:
        torch.nn.utils.clip_grad_value_(parameters, max_gradient_value)
    if max_gradient_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, max_gradient_norm)
    optimizer.step()
    optimizer.zero_grad()
