"""A projector: linear layers with a nonlinearity behind each."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from modelzoo.models.blocks.initializers import UniformInitializer, WeightInitializer
from modelzoo.models.blocks.layers import NONLINEARITIES
from modelzoo.models.multimodal.projector_config import ProjectorConfig


class Projector(nn.Module):
    """Linear layers with a nonlinearity behind each: (..., input_unit) to (..., output_unit)."""

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self._sizes = [config.input_unit, *config.layers_units]
        self.layers = nn.ModuleList(
            nn.Linear(inputs, outputs, bias=config.use_bias)
            for inputs, outputs in pairwise(self._sizes)
        )
        self._names = config.layers_activation or (None,) * len(self.layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the projection of (..., input_unit)."""
        for layer, name in zip(self.layers, self._names, strict=True):
            x = layer(x)
            if name is not None:
                x = NONLINEARITIES[name](x)
        return x

    def by_inputs(self) -> dict[str, WeightInitializer]:
        """Return the initializers of torch's linear layers: uniform within 1 / sqrt(inputs)."""
        bounds = [float(inputs) ** -0.5 for inputs in self._sizes[:-1]]
        return {
            f"layers.{index}.weight": UniformInitializer(a=-bound, b=bound)
            for index, bound in enumerate(bounds)
        }
