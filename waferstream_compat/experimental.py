"""Experimental features: listeners exist, implicit loops and weight compression are refused."""

from waferstream_compat.refused import refused

__all__ = [
    "Compression",
    "FusedTopK",
    "FusedTopP",
    "get_loop_iteration_slice",
    "start_implicit_loop",
    "update_implicit_loop",
]

_GENERATE = "generate with plain PyTorch from a checkpoint"

start_implicit_loop = refused("cerebras.pytorch.experimental.start_implicit_loop", _GENERATE)
update_implicit_loop = refused("cerebras.pytorch.experimental.update_implicit_loop", _GENERATE)
get_loop_iteration_slice = refused(
    "cerebras.pytorch.experimental.get_loop_iteration_slice", _GENERATE
)
FusedTopK = refused("cerebras.pytorch.cirh.FusedTopK", _GENERATE)
FusedTopP = refused("cerebras.pytorch.cirh.FusedTopP", _GENERATE)
Compression = refused(
    "cerebras.pytorch.experimental.Compression", "leave weight compression out: it rounds weights"
)
