"""Compute inputs of a program that are values of the whole batch (Program.whole)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from waferstream.core.roles.installation import Installation


class WholeValues:
    """Values of recent global batches that follow from their inputs, cut for each micro-batch."""

    def __init__(self, installation: Installation) -> None:
        self._program = installation.program
        self._kernel = None if installation.whole is None else installation.whole.build()
        self._recent: dict[int, tuple[torch.Tensor, ...]] = {}

    def of(self, step: int, micro_batch: int, batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values that a micro-batch gets, after its own inputs.

        Args:
            step: The step, counted from 1.
            micro_batch: The micro-batch.
            batch: The program's inputs of the whole batch of this step.
        """
        if self._kernel is None:
            return []
        if step not in self._recent:
            self._recent[step] = self._kernel(*batch)
        values = self._recent[step]
        return [
            *map(self._cut(micro_batch), values[: self._program.num_cut]),
            *values[self._program.num_cut :],
        ]

    def _cut(self, micro_batch: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the function that cuts the rows of a micro-batch out of a value."""
        rows, batch_size = self._program.rows_of(micro_batch), self._program.batch_size

        def cut(value: torch.Tensor) -> torch.Tensor:
            each = value.shape[0] // batch_size
            return value[rows.start * each : rows.stop * each]

        return cut

    def drop_before(self, step: int) -> None:
        """Forget the values of earlier steps."""
        for earlier in [known for known in self._recent if known < step]:
            del self._recent[earlier]
