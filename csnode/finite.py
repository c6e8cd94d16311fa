"""Examine the values of a micro-batch for those that are not finite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from csnode.micro_batch import MicroBatch
from waferstream.core.messages.watch import ORIGINS, Finding
from waferstream.core.program.segment import Segment


class NotFinite(NamedTuple):
    """The first value of a micro-batch that is not finite; ``position`` is in the schedule."""

    step: int
    micro_batch: int
    position: int
    tensor: str

    def finding(self, segment: Segment, role: str) -> Finding:
        """Return the role's report about it."""
        origin, tensor = ORIGINS.index("micro-batch"), f"{self.tensor} ({segment.phase})"
        return Finding(
            self.step, origin, self.micro_batch, self.position, segment.layer, tensor, role
        )


def not_finite(segment: Segment, batch: MicroBatch) -> str | None:
    """Return the name of the first value of a segment that is not finite.

    A micro-batch of which that is known, or without labels, is not examined. Minus infinity is
    allowed in what a forward segment stashes: masks of attention consist of it.
    """
    if not (batch.is_finite and batch.has_labels):
        return None
    for name, value in _values(segment, batch):
        is_bad = torch.isnan(value) | (value == torch.inf)
        if segment.phase == "backward" or name in segment.gradients:
            is_bad = ~torch.isfinite(value)
        if bool(is_bad.any()):
            return name
    return None


def _values(segment: Segment, batch: MicroBatch) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the outputs of a segment: values for later segments, gradients, results."""
    for name in segment.outputs:
        value = batch.values[name]
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield name, value
    yield from batch.gradients.items()
    for place, name in segment.results:
        result = batch.results[place]
        if isinstance(result, float):
            yield name, torch.tensor(result)
