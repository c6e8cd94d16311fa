"""What a step makes of gradients of the batch: hooks of parameters, ``p.grad.clamp_()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from wsc.core.roles.installation import GradientKernel


class GradientChanges:
    """The kernels of a program that change gradients.

    Args:
        kernels: The kernels.
        weights: The masters of a server, which some of them read.
    """

    def __init__(
        self, kernels: Sequence[GradientKernel], weights: Mapping[str, torch.Tensor]
    ) -> None:
        self._kernels = {each.parameter: each.source.build() for each in kernels}
        self._reads_weight = {each.parameter for each in kernels if each.reads_weight}
        self._weights = weights

    def apply(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Change whole gradients in place, those that have a kernel."""
        for name in self._kernels.keys() & gradients.keys():
            gradient = gradients[name]
            weight = (self._weights[name],) if name in self._reads_weight else ()
            (changed,) = self._kernels[name](gradient.clone(), *weight)
            gradient.copy_(changed)
