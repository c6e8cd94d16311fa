"""What is watched on one weight server during a job: weights, gradients, and their norms.

Those of waferstream.core.messages.watch, and the norms that a program asks for
(waferstream.core.program.program).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from memoryx.optim.clip import gradient_norms
from waferstream.core.messages.watch import ORIGINS, Finding, Origin, TensorNorms, layer_of
from waferstream.core.program.program import NormInput, Program
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


class NormNotes:
    """Notes the norms of every step in the report of a server."""

    def __init__(self, program: Program, job: Job, report: Report) -> None:
        self._wanted: dict[str, dict[str, list[NormInput]]] = {"weight": {}, "gradient": {}}
        for norm in program.norms.inputs:
            self._wanted[norm.of].setdefault(norm.parameter, []).append(norm)
        self._is_constant = not job.kind.updates
        self._trained = frozenset(program.trained)
        self._steps = job.steps
        self._report = report

    def begin(self, masters: Tensors) -> None:
        """Note the norms of weights that no step of the job changes."""
        kept = [name for name in masters if self._is_constant or name not in self._trained]
        for step in self._steps:
            self._note(step, "weight", masters, kept)

    def before_update(self, step: int, masters: Tensors, names: Iterable[str]) -> None:
        """Note the norms of weights that the step is about to change."""
        self._note(step, "weight", masters, names)

    def of_batch(self, step: int, gradients: Tensors) -> None:
        """Note the norms of unscaled gradients of the whole batch."""
        self._note(step, "gradient", gradients, gradients)

    def _note(self, step: int, of: str, tensors: Tensors, names: Iterable[str]) -> None:
        wanted = self._wanted[of]
        for name in names:
            if name not in wanted:
                continue
            (value,) = gradient_norms([tensors[name]])
            noted = self._report.step_norms.setdefault(step, {})
            noted.update({n: value**2 if n.is_squared else value for n in wanted[name]})
