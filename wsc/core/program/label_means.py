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

from wsc.core.errors import DataError

SEED_INPUT = "loss_gradient"
"""Name of the graph input with the gradient of the loss, w_i / N."""


@dataclass(frozen=True)
class LabelMean:
    """A loss or result of a step that is a mean over labels, or a sum of such means.

    ``counts`` are the positions of its terms' counts among the outputs of the count kernel;
    ``results`` are the positions of the results that it is.
    """

    counts: tuple[int, ...]
    has_other_terms: bool  # terms that are no mean over labels
    results: tuple[int, ...]
    is_loss: bool  # the backward pass starts from it

    def weights(
        self, counts: Sequence[Sequence[float]], samples: Sequence[float], step: int
    ) -> list[float]:
        """Return the weight of each micro-batch.

        Args:
            counts: The outputs of the count kernel for each micro-batch.
            samples: The weight of each micro-batch in a mean over samples.
            step: The step, for errors.

        Raises:
            DataError: The terms of a sum weigh micro-batches differently.
        """
        terms = [_weights([own[position] for own in counts]) for position in self.counts]
        if self.has_other_terms:
            terms.append(list(samples))
        first, *others = terms
        if any(other != first for other in others):
            raise DataError(
                "the terms of a loss must weigh the micro-batches alike",
                code="label-counts-differ",
                where=f"step {step}",
                value="; ".join(str([own[position] for own in counts]) for position in self.counts),
                rule="a sum of a mean over labels and other terms needs equally many labels in "
                "every micro-batch; the value lists their numbers",
                remedy="divide the sum of the labels' losses by a constant (loss_scaling: "
                "batch_size of a model of the zoo; reduction='sum' and a quotient of your own), or "
                "train without the other terms (load_balancing_loss_coef: 0 of moe)",
            )
        return first


def _weights(counts: Sequence[float]) -> list[float]:
    """Return the weight of each micro-batch; all are 0 where the batch has no label."""
    total = sum(counts)
    return [count * len(counts) / total if total else 0.0 for count in counts]
