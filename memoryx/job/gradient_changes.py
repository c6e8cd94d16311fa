"""What happens to gradients of the batch before the update: changes, and the loss scale.

The step changes them by hooks of parameters or ``p.grad.clamp_()``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from waferstream.core.messages.messages import NormTotal, WeightsReady
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.roles.installation import GradientKernel
from waferstream.core.roles.role import Job, Report


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


class LossScaling:
    """What a server knows of the loss scale: the current one, and the step that it belongs to.

    Every server that owns a gradient applies the same rule to the same agreements, so all have the
    same scale. Servers without a gradient know that of the first step only.
    """

    def __init__(self, optimizer: OptimizerSpec | None, job: Job) -> None:
        self._rule = None if optimizer is None else optimizer.scale_rule
        self._fixed = 1.0
        if optimizer is not None and not self._rule:
            assert isinstance(optimizer.loss_scale, float), "a scale is fixed or has a rule"
            self._fixed = optimizer.loss_scale
        self._step = job.first_step
        self._current: LossScale | None = job.loss_scale if self._rule else None
        assert self._rule is None or self._current, "a job with a rule states its first scale"

    @property
    def scale(self) -> float:
        """The scale of the gradients that arrive now."""
        return self._fixed if self._current is None else self._current.scale

    def applied(self, step: int) -> int:
        """Return the number of a step among those whose update is applied, from 1."""
        return step if self._current is None else step - self._current.num_skipped_steps

    def stated_in(self, ready: WeightsReady) -> WeightsReady:
        """Return a message with the loss scale of its step, if it is dynamic and known."""
        if self._current is None or ready.step != self._step:
            return ready
        return replace(ready, loss_scale=self._current.scale)

    def advance(self, total: NormTotal, report: Report) -> None:
        """Go on to the scale of the next step, and report it."""
        if self._rule is not None and self._current is not None:
            self._current = self._rule.after(self._current, total.is_finite)
            self._step = total.step + 1
            report.loss_scales[total.step] = self._current
