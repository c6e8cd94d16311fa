"""The coordinator: one running cluster, driven step by step.

Starts jobs, gathers what the nodes report into one result per step, advances the emulated clock,
and has the weight servers save, restore and show weights. Knows roles only by name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.roles import Roles
from memoryx.checkpoint import CLUSTER_STATES, write_metadata
from memoryx.optim.cost import clips_by_norm, update_cost
from simulator.cluster_timing import ClusterTiming
from simulator.costed_program import CostedProgram
from timing.attribution import StepTiming
from timing.timeline import Occupancy
from wsc.core.digest import weights_digest
from wsc.core.errors import ApplianceNanError
from wsc.core.installation import Installation
from wsc.core.names import server_name
from wsc.core.program import Mode, TensorSpec, assign_servers
from wsc.core.role import Interval, Job, Report


@dataclass(frozen=True)
class StepResult:
    """One finished step.

    ``values`` are the step's scalar outputs, averaged over micro-batches in index order (the loss
    first); ``gradient_norm`` is the global norm before clipping, None without clipping.
    """

    step: int
    values: tuple[float, ...]
    gradient_norm: float | None
    timing: StepTiming


class Coordinator:
    """Drives the roles of one cluster."""

    def __init__(
        self, parameters: Sequence[TensorSpec], num_servers: int, clock: ClusterTiming, roles: Roles
    ) -> None:
        self._roles = roles
        self._clock = clock
        self._micro_batches: dict[Mode, int] = {}
        self._reports: list[Report] = []
        self._owner = assign_servers(parameters, num_servers)
        self._servers = [server_name(index) for index in range(num_servers)]

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program."""
        self._roles.call_all("install", installation)
        program, optimizer = installation.program, installation.optimizer
        costed = CostedProgram.of(
            program,
            installation.plan,
            self._clock.machine,
            update=update_cost(optimizer, program.parameter),
            clips_by_norm=clips_by_norm(optimizer),
            loading=installation.feed.loading,
        )
        self._clock.follow(costed)
        self._micro_batches[program.mode] = program.num_micro_batches

    def run(
        self, mode: Mode, first_step: int, last_step: int, check_finite: bool = True
    ) -> list[StepResult]:
        """Run steps ``first_step`` to ``last_step`` (from 1, inclusive).

        Raises what a role failed with, and, with ``check_finite``, ApplianceNanError if a result
        of a step is not finite.
        """
        job = Job(mode, first_step, last_step)
        reports = self._roles.run(job)
        self._reports = reports
        results = list(self._step_results(job, reports))
        if check_finite:
            for result in results:
                _check_finite(result, mode)
        return results

    def load_weights(self, values: Mapping[str, torch.Tensor]) -> None:
        """Hand initial weights to the servers that own them."""
        for server, names in self._by_server(values):
            self._roles.call(server, "store.fill", {name: values[name] for name in names})

    def save(self, path: Path, states: Collection[str], objects: Mapping[str, Any]) -> None:
        """Have the servers write to a new file one after the other, then finish it.

        ``states`` are of CLUSTER_STATES, ``objects`` the states that are no tensors.
        CheckpointError if the file cannot be written.
        """
        for state in states:
            for server in self._servers:
                self._roles.call(server, "persistence.save", path, state)
        write_metadata(path, objects)

    def restore(self, path: Path, states: Collection[str], strict: bool) -> None:
        """Have the servers read from a file what they hold of ``states``.

        CheckpointError if it is damaged or does not match.
        """
        for state in CLUSTER_STATES:
            if state in states:
                for server in self._servers:
                    self._roles.call(server, "persistence.restore", path, state, strict)

    def masters(self) -> Iterator[tuple[str, np.ndarray]]:
        """(name, fp32 master) of every parameter in sorted name order, one at a time."""
        for name in sorted(self._owner):
            (array,) = self._roles.call(server_name(self._owner[name]), "masters", [name])
            yield name, array

    def digest(self) -> str:
        """SHA-256 of all weights."""
        return weights_digest(self.masters())

    def peak_bytes(self) -> dict[str, dict[str, int]]:
        """Peak SRAM bytes by kind of each CS node in the last job."""
        return {report.role: report.peak_bytes for report in self._reports if report.peak_bytes}

    def activities(self) -> tuple[list[Occupancy], dict[str, list[Interval]]]:
        """What each role did when: all of emulated time, and the last job in measured time."""
        measured = {report.role: report.intervals for report in self._reports if report.intervals}
        return self._clock.occupancies, measured

    def _step_results(self, job: Job, reports: Sequence[Report]) -> Iterator[StepResult]:
        total = self._micro_batches[job.mode]
        values = {key: value for report in reports for key, value in report.results.items()}
        norms = {step: norm for report in reports for step, norm in report.norms.items()}
        for step in job.steps:
            by_micro_batch = [values[step, index] for index in range(total)]
            means = tuple(sum(column) / total for column in zip(*by_micro_batch, strict=True))
            yield StepResult(step, means, norms.get(step), self._clock.step(job.mode, step))

    def _by_server(self, names: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
        for index, server in enumerate(self._servers):
            yield server, [name for name in names if self._owner[name] == index]


def _check_finite(result: StepResult, mode: Mode) -> None:
    if not all(map(math.isfinite, result.values)):
        raise ApplianceNanError(
            f"the {mode} loss of step {result.step} is not finite",
            value=", ".join(map(str, result.values)),
            rule="losses are finite numbers",
            remedy="lower the learning rate, clip gradients (precision.max_gradient_norm), or "
            "check the data; then continue from a checkpoint of an earlier step",
        )
