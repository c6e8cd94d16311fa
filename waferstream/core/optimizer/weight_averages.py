"""Parameters that are moving averages of others, as the teacher of a self-supervised model.

No gradient trains such a parameter. After every update of its source, MemoryX sets

    average = decay * average + (1 - decay) * source

with the updated source, in fp32; ``decay`` follows a schedule over the updates. A step whose update
is skipped leaves the average as it is. Source and average lie in the same weight server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from waferstream.core.hyper_schedules.base import HyperSchedule

if TYPE_CHECKING:
    import torch

FLOPS_OF_AVERAGE = 3
"""Operations per element: two multiplications and an addition."""

_MARK = "_weight_average"


@dataclass(frozen=True)
class WeightAverage:
    """One parameter that is the moving average of another one."""

    average: str
    source: str
    decay: HyperSchedule

    def decay_at(self, update: int) -> float:
        """Return the factor on the average after an update of its source, counted from 1."""
        return self.decay.at(update)


def average_weights(
    averages: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], decay: HyperSchedule
) -> None:
    """Let parameters be the moving averages of others, from the next update on.

    Args:
        averages: The parameters; no gradient trains them any more.
        sources: The parameter that each one averages, of the same shape.
        decay: Factor on the averages as a function of the number of updates.
    """
    for average, source in zip(averages, sources, strict=True):
        assert average.shape == source.shape, "an average has the shape of its source"
        average.requires_grad_(False)
        setattr(average, _MARK, (source, decay))


def averages_among(names: Mapping[torch.Tensor, str]) -> Iterator[WeightAverage]:
    """Yield the averages among the parameters of a model, whose names are given."""
    for parameter, name in names.items():
        if (mark := getattr(parameter, _MARK, None)) is not None:
            source, decay = mark
            yield WeightAverage(name, names[source], decay)


def advance(average: torch.Tensor, source: torch.Tensor, decay: float) -> None:
    """Set an average to ``decay * average + (1 - decay) * source``, in place."""
    average.mul_(decay).add_(source, alpha=1.0 - decay)
