"""Steps to compile, without a front end or an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

Step = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def backward_step(
    model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor] = lambda output: output
) -> Step:
    """Return a step that takes ``model.forward``'s inputs and runs backward from ``loss``."""

    def step(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        result = loss(model(*inputs))
        result.backward()
        return [result]

    return step


def mean_square(output: torch.Tensor) -> torch.Tensor:
    """Return a loss for models that have none."""
    return output.square().mean()
