"""The activations of one micro-batch on a CS node, between the segments of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from waferstream.core.program.segment import Segment
from waferstream.core.roles.role import Value

Kernel = Callable[..., tuple[Any, ...]]


@dataclass
class MicroBatch:
    """The activations of one micro-batch between segments.

    ``values`` holds the batch inputs and every stashed value by name, ``gradients`` those of the
    segment that ran last, ``results`` the step's results by position: tensors at the positions
    ``tensors``, numbers at all others. ``weights`` are its weights in results that are means, by
    position; ``has_labels`` is False where it has no label of the loss, and its gradients are 0.
    """

    index: int
    values: dict[str, Any]
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    results: dict[int, Value] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    has_labels: bool = True
    tensors: frozenset[int] = frozenset()
    is_finite: bool = True  # as far as it was examined

    def run(self, segment: Segment, kernel: Kernel, weights: Sequence[torch.Tensor]) -> None:
        """Run one segment and keep what later segments read."""
        inputs = [self.values[name] for name in segment.inputs]
        returned = kernel(*weights, *inputs)
        num_outputs, num_gradients = len(segment.outputs), len(segment.gradients)
        self.values.update(zip(segment.outputs, returned[:num_outputs], strict=True))
        gradients = returned[num_outputs : num_outputs + num_gradients]
        if not self.has_labels:  # a mean over no labels is not a number
            gradients = tuple(map(torch.zeros_like, gradients))
        self.gradients = dict(zip(segment.gradients, gradients, strict=True))
        results = returned[num_outputs + num_gradients :]
        for (place, _), value in zip(segment.results, results, strict=True):
            weight = self.weights.get(place, 1.0)
            if place in self.tensors:
                # A copy on the processor: it may be a view of something larger.
                self.results[place] = value.to("cpu", copy=True)
            else:
                self.results[place] = float(value) * weight if weight else 0.0

    def take_gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients of the segment that ran last, and keep them no more."""
        taken, self.gradients = self.gradients, {}
        return taken

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
