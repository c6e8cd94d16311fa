"""The norms that a program asks of a weight server (waferstream.core.program.program)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from memoryx.optim.clip import gradient_norms
from waferstream.core.program.program import NormInput, Program
from waferstream.core.roles.role import Job, Report

Tensors = Mapping[str, torch.Tensor]


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
