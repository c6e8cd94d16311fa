"""One micro-batch on its way through the segments: its values, and nothing of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from wsc.core.program import Segment

Kernel = Callable[..., tuple[Any, ...]]


@dataclass
class MicroBatch:
    """The activations of one micro-batch between segments.

    ``values`` holds the batch inputs and every stashed value by name, ``gradients`` those of the
    segment that ran last, ``results`` the step's scalar outputs by position.
    """

    index: int
    values: dict[str, Any]
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    results: dict[int, float] = field(default_factory=dict)

    def run(self, segment: Segment, kernel: Kernel, weights: Sequence[torch.Tensor]) -> None:
        """Run one segment and keep what later segments read."""
        inputs = [self.values[name] for name in segment.inputs]
        returned = kernel(*weights, *inputs)
        num_outputs, num_gradients = len(segment.outputs), len(segment.gradients)
        self.values.update(zip(segment.outputs, returned[:num_outputs], strict=True))
        gradients = returned[num_outputs : num_outputs + num_gradients]
        self.gradients = dict(zip(segment.gradients, gradients, strict=True))
        results = returned[num_outputs + num_gradients :]
        for (place, _), value in zip(segment.results, results, strict=True):
            self.results[place] = float(value)

    def drop(self, names: Sequence[str]) -> None:
        """Forget stashed values."""
        for name in names:
            del self.values[name]

    @property
    def num_bytes(self) -> int:
        """Bytes of all values that are held; views of one tensor count once."""
        tensors = (value for value in self.values.values() if isinstance(value, torch.Tensor))
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values())
