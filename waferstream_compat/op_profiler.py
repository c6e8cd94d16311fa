"""The vendor's profiler of ops: refused, as emulated times of ops come from a trace file."""

from waferstream_compat.refused import refused

__all__ = ["profile", "schedule"]

_REMEDY = "run with `waferstream exec --trace FILE`, which has the times of all kernels"

profile = refused("cerebras.pytorch.profiler.profile", _REMEDY)
schedule = refused("cerebras.pytorch.profiler.schedule", _REMEDY)
