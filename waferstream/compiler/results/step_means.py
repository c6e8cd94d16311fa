"""Running means over steps that keep their value within a step.

A buffer that a step writes cannot be read for a gradient of the same step, since no micro-batch
waits for the one before (waferstream.compiler.results.step_state). A mean over the batch that the
*next* step reads needs no such wait: its micro-batches add to a sum, in index order, and the value
changes when the step is done.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from waferstream.core.program.program import StepMeanSpec

_BUFFERS = ("value", "total", "weight", "num_steps")


class StepMean(nn.Module):
    """The exponential moving average of a weighted mean over the batch of each step.

    All micro-batches of step t read ``value`` as step t - 1 has left it. After step t

        value = momentum * value + (1 - momentum) * total / weight

    where ``total`` and ``weight`` are the sums over the micro-batches of what ``add`` was given, so
    the value does not depend on how the batch is cut, up to the rounding of sums in index order. A
    step that adds no weight leaves the value as it is. All buffers are fp32 but for ``num_steps``.

    Args:
        size: Elements of the value.
        momentum: Factor on the value before.
    """

    value: torch.Tensor
    total: torch.Tensor
    weight: torch.Tensor
    num_steps: torch.Tensor

    def __init__(self, size: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(size))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("weight", torch.zeros(()))
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))

    def spec(self, prefix: str = "") -> StepMeanSpec:
        """Return the names of the buffers, after a prefix, and the momentum."""
        value, total, weight, num_steps = (f"{prefix}{name}" for name in _BUFFERS)
        return StepMeanSpec(value, total, weight, num_steps, self.momentum)

    @torch.no_grad()
    def reset(self) -> None:
        """Set all buffers to zero, as before the first step; a simulation has them in memory."""
        for name, buffer in self.named_buffers(recurse=False):
            if buffer.is_meta:
                self._buffers[name] = torch.zeros(buffer.shape, dtype=buffer.dtype, device="cpu")
            else:
                buffer.zero_()

    @torch.no_grad()
    def add(self, total: torch.Tensor, weight: torch.Tensor) -> None:
        """Add the weighted sum over a micro-batch, (size,), and its weight, a scalar."""
        self.total.add_(total.float())
        self.weight.add_(weight.float())

    @torch.no_grad()
    def close(self) -> None:
        """End a step; a plain loop calls it, on the cluster the coordinator does the same."""
        buffers = dict(self.named_buffers())
        for name, value in closed(self.spec(), buffers).items():
            buffers[name].copy_(value)


def close_step(model: nn.Module) -> None:
    """End a step of a plain loop for every ``StepMean`` of a model."""
    for module in model.modules():
        if isinstance(module, StepMean):
            module.close()


def closed(spec: StepMeanSpec, buffers: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the buffers of a mean after a step, by name, as new tensors."""
    value, total, weight = (buffers[name] for name in (spec.value, spec.total, spec.weight))
    mean = total / weight
    advanced = value * spec.momentum + mean * (1.0 - spec.momentum)
    return {
        spec.value: torch.where(weight > 0, advanced, value),
        spec.total: torch.zeros_like(total),
        spec.weight: torch.zeros_like(weight),
        spec.num_steps: buffers[spec.num_steps] + 1,
    }
