"""Event files for TensorBoard, written from step closures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorboardX
import torch


def write_tensor(folder: Path, tag: str, tensor: torch.Tensor, step: int) -> None:
    """Write a tensor as ``<folder>/<tag>/<step>.npy``; bfloat16 becomes float32."""
    value = tensor.detach().cpu()
    path = folder / tag / f"{step}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, (value.float() if value.dtype == torch.bfloat16 else value).numpy())


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]  # tensorboardX is untyped
    """Writer of an event file, with the methods of torch's writer (``add_scalar``, ...).

    Args:
        log_dir: Folder of the file, made if it is missing; below ``runs`` if None.
        options: Other options of tensorboardX's writer, such as ``flush_secs``.
    """

    def __init__(self, log_dir: str | Path | None = None, **options: Any) -> None:
        super().__init__(logdir=None if log_dir is None else str(log_dir), **options)
        self.cs_events_dir = str(Path(self.logdir) / "cs_events")
        """Folder of whole tensors."""

    def add_tensor(self, tag: str, tensor: torch.Tensor, step: int | None = None) -> None:
        """Write a tensor to ``cs_events_dir`` as ``<tag>/<step>.npy``; bfloat16 becomes float32."""
        write_tensor(Path(self.cs_events_dir), tag, tensor, step or 0)

    def _get_file_writer(self) -> Any:
        """Return the file writer; its event writer has the name of the file, as torch's has."""
        writer = super()._get_file_writer()
        events = writer.event_writer
        events._file_name = events._ev_writer._file_name
        return writer
