"""Count the labels of a global batch, and weigh its micro-batches in means over labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from wsc.core.installation import Installation


class LabelWeights:
    """Weights of the micro-batches of recent steps in a program's means over labels."""

    def __init__(self, installation: Installation) -> None:
        self._program = installation.program
        source = installation.label_counts
        self._count = None if source is None else source.build()
        self._recent: dict[int, list[tuple[float, ...]]] = {}

    def of(
        self, step: int, micro_batch: int, inputs: Callable[[int], Sequence[torch.Tensor]]
    ) -> tuple[float, ...]:
        """Return the weight of a micro-batch in each mean, in the order of the program.

        Args:
            step: The step, counted from 1.
            micro_batch: The micro-batch.
            inputs: Returns the program's inputs of a micro-batch of this step.

        Raises:
            DataError: The terms of a loss weigh the micro-batches differently.
        """
        if self._count is None:
            return ()
        if step not in self._recent:
            total = self._program.num_micro_batches
            counts = [[float(c) for c in self._count(*inputs(index))] for index in range(total)]
            means = [mean.weights(counts, step) for mean in self._program.label_means]
            self._recent[step] = list(zip(*means, strict=True))
        return self._recent[step][micro_batch]

    def drop_before(self, step: int) -> None:
        """Forget the weights of earlier steps."""
        for earlier in [known for known in self._recent if known < step]:
            del self._recent[earlier]
