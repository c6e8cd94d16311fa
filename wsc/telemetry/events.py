"""Event files for TensorBoard. Takes seconds to import: import it where a run begins."""

from __future__ import annotations

from pathlib import Path

from tensorboardX import SummaryWriter


class EventWriter:
    """Appends scalars to one event file in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._writer = SummaryWriter(str(folder))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Record one value; names with a slash share a group, as in ``train/loss``."""
        self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is buffered and close the file."""
        self._writer.close()
