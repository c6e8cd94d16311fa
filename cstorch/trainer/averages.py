"""Moving averages of the weights of a model (EMA), which MemoryX advances after each update."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from waferstream.core.hyper_schedules.decays import ConstantLR
from waferstream.core.optimizer import average_weights


class WithAverages(nn.Module):
    """A model, and a copy of it whose weights are moving averages of those of the model.

    After each update: average = decay x average + (1 - decay) x weight. They begin with the initial
    weights. Buffers are not averaged.

    Args:
        model: The model.
        decay: Factor on the averages.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.model = model
        self.averages = copy.deepcopy(model)
        pairs = zip(self.averages.parameters(), model.parameters(), strict=True)
        trained = [(average, own) for average, own in pairs if own.requires_grad]
        schedule = ConstantLR(learning_rate=decay)
        average_weights([a for a, _ in trained], [own for _, own in trained], schedule)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.model(*arguments, **named)

    def read(self) -> nn.Module:
        """Return the copy, with the newest averages and the buffers of the model."""
        for average, own in zip(self.averages.buffers(), self.model.buffers(), strict=True):
            with torch.no_grad():
                average.copy_(own)
        return self.averages
