"""Event files for TensorBoard, written from step closures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorboardX


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]  # tensorboardX is untyped
    """Writer of an event file, with the methods of torch's writer (``add_scalar``, ...).

    Args:
        log_dir: Folder of the file, made if it is missing; below ``runs`` if None.
        options: Other options of tensorboardX's writer, such as ``flush_secs``.
    """

    def __init__(self, log_dir: str | Path | None = None, **options: Any) -> None:
        super().__init__(logdir=None if log_dir is None else str(log_dir), **options)
