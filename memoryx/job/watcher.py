"""Watch the weights and gradients of one server during a job (waferstream.core.messages.watch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from memoryx.optim.clip import gradient_norms
from waferstream.core.messages.watch import ORIGINS, Finding, Origin, TensorNorms, layer_of
from waferstream.core.program.program import Program
from waferstream.core.roles.role import Job, Report

Tensors = Mapping[str, torch.Tensor]


class Watcher:
    """Notes norms and values that are not finite in the report of a server."""

    def __init__(self, program: Program, job: Job, report: Report) -> None:
        self._place = {spec.name: place for place, spec in enumerate(program.parameters)}
        self._watch = job.watch
        self._first_step, self._last_step = job.first_step, job.last_step
        self._report = report

    def begin(self, masters: Tensors) -> None:
        """Examine the weights before the first step."""
        self._examine(self._first_step, "weights", masters, masters)

    def before_update(self, step: int, masters: Tensors, gradients: Tensors) -> None:
        """Examine whole gradients; note norms where the step is the last one."""
        self._examine(step, "gradients", gradients, gradients)
        if self._watch.norms and step == self._last_step:
            weights = [gradient_norms([masters[name]])[0] for name in gradients]
            pairs = map(TensorNorms, weights, gradient_norms(gradients.values()))
            self._report.tensor_norms.update(zip(gradients, pairs, strict=True))

    def after_update(self, step: int, masters: Tensors, names: Iterable[str]) -> None:
        """Examine the weights of some names after their update."""
        self._examine(step, "update", masters, names)

    def _examine(self, step: int, origin: Origin, tensors: Tensors, names: Iterable[str]) -> None:
        if step > self._watch.finite_to:
            return
        for name in names:
            if not bool(torch.isfinite(tensors[name]).all()):
                index, role = ORIGINS.index(origin), self._report.role
                found = Finding(step, index, -1, self._place[name], layer_of(name), name, role)
                self._report.findings.append(found)
                return
