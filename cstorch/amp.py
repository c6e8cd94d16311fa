"""Mixed precision: fp32 masters in MemoryX, weights streamed in half precision."""

from __future__ import annotations

import torch
from pydantic import ValidationError

from cstorch import flags
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.recorder import active_recorder
from wsc.compiler.precision import StreamPrecision
from wsc.core.errors import ConfigError


def set_half_dtype(name: str) -> None:
    """Stream weights in ``bfloat16`` or ``float16``; ConfigError for anything else."""
    try:
        flags.amp.half_dtype = name  # type: ignore[assignment]  # checked when it is assigned
    except ValidationError as error:
        raise ConfigError(
            "the half dtype must be bfloat16 or float16", code="unknown-half-dtype", value=name
        ) from error


def get_half_dtype_str() -> str:
    """Return the name of the half dtype."""
    return flags.amp.half_dtype


def enable_mixed_precision(enabled: bool = True) -> None:
    """Switch half precision on, or off for fp32 throughout."""
    flags.amp.enabled = enabled


def stream_precision() -> StreamPrecision:
    """Return the dtypes that follow from settings and ``csx.precision.optimization_level``."""
    if not flags.amp.enabled:
        return StreamPrecision("float32", "float32")
    half = flags.amp.half_dtype
    computes_in_half = flags.csx.precision.optimization_level > 0
    return StreamPrecision(half, half if computes_in_half else "float32")


class GradScaler:
    """A fixed loss scale: keeps small gradients of ``float16`` kernels from vanishing.

    MemoryX divides the gradients by the scale before it clips and applies them.
    """

    def __init__(self, loss_scale: float = 1.0) -> None:
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
