"""Count the labels of a global batch, and weigh its micro-batches in means over labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from waferstream.core.roles.installation import Installation


class LabelWeights:
    """Weights of the micro-batches of recent steps in a program's means over labels."""

    def __init__(self, installation: Installation) -> None:
        self._program = installation.program
        sources = [sized.label_counts for sized in installation.sized]
        self._count = [source.build() for source in sources if source is not None]
        self._recent: dict[int, list[tuple[float, ...]]] = {}

    def of(
        self, step: int, micro_batch: int, inputs: Callable[[int], Sequence[torch.Tensor]]
    ) -> tuple[float, ...]:
        """Return the weight of a micro-batch in each mean, in the order of the program.

        Args:
            step: The step, counted from 1.
            micro_batch: The micro-batch.
            inputs: Returns the program's inputs of a micro-batch of this step.
        """
        if not self._count:
            return ()
        if step not in self._recent:
            total = self._program.num_micro_batches
            counts = [self._counts(index, inputs(index)) for index in range(total)]
            means = [mean.weights(counts) for mean in self._program.label_means]
            self._recent[step] = list(zip(*means, strict=True))
        return self._recent[step][micro_batch]

    def _counts(self, micro_batch: int, inputs: Sequence[torch.Tensor]) -> list[float]:
        count = self._count[self._program.is_short(micro_batch)]
        return [float(labels) for labels in count(*inputs)]

    def drop_before(self, step: int) -> None:
        """Forget the weights of earlier steps."""
        for earlier in [known for known in self._recent if known < step]:
            del self._recent[earlier]
