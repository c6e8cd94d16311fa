"""Mixed precision: fp32 masters in MemoryX, weights streamed in half precision."""

from __future__ import annotations

import torch

from cstorch import backends
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.recorder import active_recorder
from wsc.compiler.precision import StreamPrecision
from wsc.core.errors import ConfigError

_HALF = ("bfloat16", "float16")


class _Settings:
    half_dtype: str = "bfloat16"
    enabled: bool = True


_settings = _Settings()


def set_half_dtype(name: str) -> None:
    """Stream weights in ``bfloat16`` or ``float16``; ConfigError for anything else."""
    if name not in _HALF:
        raise ConfigError("no such half dtype", value=name, rule=f"one of {', '.join(_HALF)}")
    _settings.half_dtype = name


def get_half_dtype_str() -> str:
    """Name of the half dtype."""
    return _settings.half_dtype


def enable_mixed_precision(enabled: bool = True) -> None:
    """Switch half precision on, or off for fp32 throughout."""
    _settings.enabled = enabled


def reset() -> None:
    """All settings back to their defaults."""
    enable_mixed_precision()
    set_half_dtype("bfloat16")


def stream_precision() -> StreamPrecision:
    """What the settings and ``csx.precision.optimization_level`` amount to."""
    if not _settings.enabled:
        return StreamPrecision("float32", "float32")
    half = _settings.half_dtype
    computes_in_half = backends.csx.precision.optimization_level > 0
    return StreamPrecision(half, half if computes_in_half else "float32")


class GradScaler:
    """A fixed loss scale: keeps small gradients of ``float16`` kernels from vanishing.

    MemoryX divides the gradients by the scale before it clips and applies them.
    """

    def __init__(self, loss_scale: float = 1.0) -> None:
        if not loss_scale > 0:
            raise ConfigError("the loss scale is out of range", value=loss_scale, rule="above 0")
        self.loss_scale = loss_scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call ``backward()`` on; inside a traced step."""
        recorder = active_recorder.get()
        if recorder is None or self.loss_scale == 1.0:
            return loss
        recorder.scale_loss(self.loss_scale)
        return loss * self.loss_scale

    def get_scale(self) -> float:
        """The scale."""
        return self.loss_scale


def optimizer_step(
    loss: torch.Tensor,
    optimizer: Optimizer,
    grad_scaler: GradScaler,
    max_gradient_norm: float | None = None,
    max_gradient_value: float | None = None,
) -> None:
    """Backward pass, clipping, update and ``zero_grad`` in the order that MemoryX keeps."""
    grad_scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if max_gradient_value is not None:
        torch.nn.utils.clip_grad_value_(parameters, max_gradient_value)
    if max_gradient_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, max_gradient_norm)
    optimizer.step()
    optimizer.zero_grad()
