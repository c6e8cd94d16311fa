"""Files of checkpoints, as commands read and write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.host.files import replacing

if TYPE_CHECKING:
    import torch


def local_path(path: str) -> Path:
    """Return a local path; ConfigError for a URL."""
    if "://" in path:
        raise ConfigError(
            "a checkpoint must be a local file",
            code="checkpoint-not-local",
            value=path,
            remedy="copy the object to this host first",
        )
    return Path(path)


def new_file(path: Path, remedy: str = "delete it, or name another file") -> Path:
    """Return a path at which there is no file yet; CheckpointError if there is one."""
    if path.exists():
        raise CheckpointError(
            "the file must not exist yet", code="file-exists", where=str(path), remedy=remedy
        )
    return path


def write_weights(
    path: Path, weights: Mapping[str, torch.Tensor], objects: Mapping[str, Any]
) -> None:
    """Write a checkpoint with the weights of a model; bfloat16 becomes float32."""
    arrays = {name: _numpy(tensor) for name, tensor in weights.items()}
    with replacing(path, durable=True) as partial:
        append_tensors(partial, MODEL, arrays)
        write_metadata(partial, objects)


def _numpy(tensor: torch.Tensor) -> Any:
    import torch  # noqa: PLC0415  (slow)

    tensor = tensor.detach().cpu().contiguous()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
