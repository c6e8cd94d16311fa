"""What a step makes of gradients of the batch: hooks of parameters, ``p.grad.clamp_()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from waferstream.core.roles.installation import GradientKernel


class GradientChanges:
    """The kernels of a program that change gradients."""

    def __init__(self, kernels: Sequence[GradientKernel]) -> None:
        self._arguments = (kernels,)
        self._kernels = {each.parameter: each.source.build() for each in kernels}
        self._reads_weight = {each.parameter for each in kernels if each.reads_weight}

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out the built kernels, which are functions: a job state can be pickled."""
        return GradientChanges, self._arguments

    def apply(
        self, gradients: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
    ) -> None:
        """Change whole gradients in place, those that have a kernel.

        ``weights`` are the masters of the server, which some kernels read.
        """
        for name in self._kernels.keys() & gradients.keys():
            gradient = gradients[name]
            weight = (weights[name],) if name in self._reads_weight else ()
            (changed,) = self._kernels[name](gradient.clone(), *weight)
            gradient.copy_(changed)
