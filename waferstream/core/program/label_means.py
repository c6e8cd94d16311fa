"""Means over labels: how much each micro-batch counts in the mean over the batch.

A loss such as ``cross_entropy`` with ``ignore_index`` is a mean over labels. Micro-batches may have
different numbers of labels, so the mean over the batch weighs the mean of each micro-batch:

    sum of all losses / sum of all c_i  =  1/N  *  sum over i of  w_i * (mean of micro-batch i),
    with  w_i = c_i * N / (sum of all c_i)

for N micro-batches with c_i labels. The gradient is weighed alike, through the gradient at which
the backward pass starts: w_i / N. Equal numbers of labels give w_i = 1 exactly. The counts depend
on the inputs alone: the input worker, which reads the whole batch, knows them before the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SEED_INPUT = "loss_gradient"
"""Name of the graph input with the gradient of the loss, w_i / N."""


@dataclass(frozen=True)
class LabelMean:
    """A loss or result of a step that is a mean over labels, or a sum of such means.

    ``count`` is the position of its count among the outputs of the count kernel; ``results`` are
    the positions of the results that it is.
    """

    count: int
    results: tuple[int, ...]
    is_loss: bool  # the backward pass starts from it

    def weights(self, counts: Sequence[Sequence[float]]) -> list[float]:
        """Return the weight of each micro-batch; all are 0 where the batch has no label.

        Args:
            counts: The outputs of the count kernel for each micro-batch.
        """
        own = [outputs[self.count] for outputs in counts]
        total = sum(own)
        return [count * len(own) / total if total else 0.0 for count in own]
