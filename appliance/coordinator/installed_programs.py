"""The programs of a running cluster, and what their steps change in the coordinator.

The reports of the roles say what each micro-batch has returned. From them come the results of the
steps, the buffers that steps write (the step state), and the emulated time.

Micro-batches are computed side by side; what they contribute to a buffer comes back with their
results. The coordinator applies the contributions of one micro-batch after the other, in index
order, as a plain loop over the micro-batches does: the cluster's shape cannot change a bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from appliance.coordinator.speeds import Stragglers
from appliance.coordinator.step_results import StepResult, combine, guarded
from appliance.coordinator.times import EmulatedClock
from appliance.health.link_waits import longest_waits
from memoryx.optim.cost import update_cost
from waferstream.compiler.results.step_means import closed
from waferstream.core.errors import DataError
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import NormInput, Program, ProgramKind
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Job, Report, Value

Norms = Mapping[NormInput, float]

Update = Callable[..., tuple[Any, ...]]

MOST_BYTES = 64 * 2**20
"""Contributions of a job; a longer run is cut into several jobs, which changes no result."""


class LossGuards:
    """The kernels of installed programs that guard losses."""

    def __init__(self) -> None:
        self._kernels: dict[ProgramKind, list[Callable[..., tuple[Any, ...]]]] = {}

    def install(self, installation: Installation) -> None:
        """Build the kernels of a program."""
        self._kernels[installation.kind] = [kernel.build() for kernel in installation.guards]

    def check(self, program: Program, losses: Sequence[Value], step: int) -> None:
        """Raise DataError for a loss of the batch that a guard would have changed.

        Args:
            program: The program of the step.
            losses: What the guards take, in their order.
            step: The step, for errors.
        """
        kernels = self._kernels[program.kind]
        for guard, kernel, loss in zip(program.guards, kernels, losses, strict=True):
            (kept,) = kernel(torch.tensor(loss))
            if not torch.equal(kept, torch.tensor(loss)):
                raise DataError(
                    "an op that keeps the loss within limits would have changed it",
                    code="loss-out-of-limits",
                    where=f"step {step}: {guard}",
                    value=f"{loss}, which becomes {float(kept)}",
                    rule="it acts on the loss of the batch, which is known after the backward pass "
                    "of its micro-batches",
                    remedy="keep the losses of samples within limits, before they are added; or "
                    "set csx.performance.micro_batch_size to the batch size",
                )


class InstalledPrograms:
    """The programs that a cluster runs, with their buffers and the emulated clock.

    Attributes:
        training: The program that trains, with its optimizer, once it is installed.
        state: The buffers that steps read or write.
        clock: The emulated clock.
    """

    def __init__(self, clock: EmulatedClock, stragglers: Stragglers) -> None:
        self.training: Installation | None = None
        self.state = StateHolder()
        self.clock = clock
        self._stragglers = stragglers
        self._programs: dict[ProgramKind, Program] = {}
        self._norms = _NormKernels()
        self._guards = LossGuards()

    def of(self, kind: ProgramKind) -> Program:
        """Return the program of a kind."""
        return self._programs[kind]

    def install(self, installation: Installation) -> None:
        """Take a program, in place of an earlier one of the same kind."""
        self.state.install(installation)
        self._norms.install(installation)
        self._guards.install(installation)
        self._load(installation)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same parameters."""
        before = self.training
        assert before is not None, "an update belongs to an installed training program"
        costs = {update_cost(o, before.program.parameter) for o in (before.optimizer, optimizer)}
        self.training = replace(before, optimizer=optimizer)
        if len(costs) > 1:
            self._load(self.training)

    def results(self, job: Job, reports: Sequence[Report]) -> Iterator[StepResult]:
        """Yield the result of each step of a job, in order, and advance state and clock by it."""
        program = self._programs[job.kind]
        returned = {key: value for report in reports for key, value in report.results.items()}
        norms = {step: norm for report in reports for step, norm in report.norms.items()}
        scales = {step: scale for report in reports for step, scale in report.loss_scales.items()}
        tensor_norms = {n: pair for report in reports for n, pair in report.tensor_norms.items()}
        in_order = {n: tensor_norms[n] for n in program.trained if n in tensor_norms}
        step_norms = self._norms.gathered(reports)
        stragglers = self._stragglers.take(reports, job.steps)
        link_waits = longest_waits(reports)
        skipped = 0 if job.loss_scale is None else job.loss_scale.num_skipped_steps
        for step in job.steps:
            parts = [returned[step, index] for index in range(program.num_micro_batches)]
            of_norms = self._norms.results(program, step_norms[step])
            of_coordinator = {**self.state.advance(program, parts), **of_norms}
            self._guards.check(program, guarded(program, parts), step)
            values = combine(program, parts, of_coordinator)
            timing = self.clock.step(job.kind, step, self.training, skipped)
            watched, waits = (in_order, link_waits) if step == job.last_step else ({}, {})
            scale, slow = scales.get(step), stragglers.get(step, ())
            skipped = skipped if scale is None else scale.num_skipped_steps
            yield StepResult(step, values, norms.get(step), timing, scale, watched, slow, waits)

    def _load(self, installation: Installation) -> None:
        """Load a program into the emulated clock."""
        program = installation.program
        if program.kind.updates:
            self.training = installation
        self.clock.load(installation)
        self._programs[program.kind] = program


class _NormKernels:
    """The kernels of installed programs that compute results from norms of the weight servers."""

    def __init__(self) -> None:
        self._kernels: dict[ProgramKind, Callable[..., tuple[Any, ...]]] = {}

    def install(self, installation: Installation) -> None:
        """Build the kernel of a program, if it has one."""
        if installation.norms is not None:
            self._kernels[installation.kind] = installation.norms.build()

    def gathered(self, reports: Iterable[Report]) -> Mapping[int, Norms]:
        """Return the norms of each step from the reports of all servers."""
        found: defaultdict[int, dict[NormInput, float]] = defaultdict(dict)
        for report in reports:
            for step, norms in report.step_norms.items():
                found[step] |= norms
        return found

    def results(self, program: Program, norms: Norms) -> dict[int, Value]:
        """Return the results of a step that are computed from norms, by position."""
        wanted = program.norms
        if not wanted.results:
            return {}
        inputs = (torch.tensor(norms[norm], dtype=torch.float32) for norm in wanted.inputs)
        outputs = self._kernels[program.kind](*inputs)
        values = (value if value.ndim else float(value) for value in outputs)
        return dict(zip(wanted.results, values, strict=True))


class StateHolder:
    """The buffers that installed programs read or write, by name."""

    def __init__(self) -> None:
        self.values: dict[str, torch.Tensor] = {}
        self._updates: dict[ProgramKind, list[Update]] = {}  # of each size of micro-batches

    def install(self, installation: Installation) -> None:
        """Keep the update of a program."""
        updates = [sized.state_update for sized in installation.sized]
        self._updates[installation.kind] = [update.build() for update in updates if update]

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Copy values of buffers."""
        self.values.update({name: value.detach().clone() for name, value in values.items()})

    def arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return copies of buffers; half dtypes become fp32, as numpy lacks one of them."""
        return {
            name: (value.float() if value.dtype == torch.bfloat16 else value).numpy().copy()
            for name in names
            if (value := self.values.get(name)) is not None
        }

    def read_by(self, program: Program) -> dict[str, torch.Tensor]:
        """Return the buffers that the kernels of a program read, and the inputs of the step."""
        names = [spec.name for spec in program.state.reads]
        names += [each.name for each in program.step_inputs]
        return {name: self.values[name] for name in names}

    def advance(self, program: Program, parts: Sequence[Sequence[Value]]) -> dict[int, Value]:
        """Apply the contributions of a step; return the step results that depend on the buffers.

        Args:
            program: The program of the step.
            parts: What each micro-batch has returned, in index order.
        """
        state = program.state
        if not state.writes:
            return {}
        returned: tuple[Any, ...] = ()
        for index, part in enumerate(parts):
            update = self._updates[program.kind][program.is_short(index)]
            arguments = [self.values[name] for name in state.arguments]
            contributions = part[program.num_results : program.guarded.start]
            returned = update(*arguments, *contributions)
            news = dict(zip((spec.name for spec in state.writes), returned, strict=False))
            # A copy, since a value may be a view of a contribution or of another buffer.
            self.values.update({name: new.clone() for name, new in news.items()})
        for mean in state.means:
            self.values.update(closed(mean, self.values))
        return dict(zip(state.results, returned[len(state.writes) :], strict=True))


def steps_per_job(program: Program) -> int | None:
    """Return how many steps a job may have, None for any.

    Its contributions have to stay small, and nodes learn the values of buffers when it begins.
    """
    state = program.state
    if state.means:  # the next step reads them
        return 1
    if not state.contributions:
        return None
    num_bytes = sum(spec.num_bytes for spec in state.contributions) * program.num_micro_batches
    return max(1, MOST_BYTES // max(1, num_bytes))
