"""Mixed precision: fp32 masters in MemoryX, weights streamed in half precision."""

from __future__ import annotations

from cstorch import backends
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


def stream_precision() -> StreamPrecision:
    """What the settings and ``csx.precision.optimization_level`` amount to."""
    if not _settings.enabled:
        return StreamPrecision("float32", "float32")
    half = _settings.half_dtype
    computes_in_half = backends.csx.precision.optimization_level > 0
    return StreamPrecision(half, half if computes_in_half else "float32")
