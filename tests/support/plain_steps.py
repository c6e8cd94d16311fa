"""Steps to compile, without a front end or an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

Step = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def backward_step(
    model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor] = lambda output: output
) -> Step:
    """Inputs in the order of ``model.forward``; the loss is what ``loss`` makes of its output."""

    def step(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        result = loss(model(*inputs))
        result.backward()
        return [result]

    return step


def mean_square(output: torch.Tensor) -> torch.Tensor:
    """A loss for models that have none."""
    return output.square().mean()
