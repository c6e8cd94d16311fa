"""The steps of a loop that were called and have not run yet, and the jobs that run them.

Iterations only collect calls; the cluster runs from one activation step to the next in one job, so
that the steps in between overlap. Results have values at activation steps.

    iteration        1    2    3    4    5    6        activation_steps=3
    cluster          .    .    1-3  .    .    4-6      values of steps 3 and 6 come back
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from weakref import WeakValueDictionary

import torch

from appliance.coordinator.step_results import StepResult
from cstorch.loop.profiler import Profiler
from cstorch.recording.loop import Step
from cstorch.recording.step_value import Reader, StepCall
from cstorch.session.session import Session
from waferstream.core.errors import ConfigError

LONGEST_JOB_S = 1.0
"""Steps that take longer, as far as that is known, run as several jobs where a loop may be left."""


class PendingSteps:
    """The steps that a loop has called, of which some may not have run.

    Args:
        reader: Runs the steps of a result that is read in the loop.
        session: What runs the steps.

    Iterations are counted from 1.
    """

    def __init__(self, reader: Reader, session: Session) -> None:
        self._reader = reader
        self._session = session
        self.profiler = Profiler()
        """Rates of the steps."""
        self.step: Step | None = None
        """The step that was called last."""
        self.start = session.global_step
        """Steps of training before the loop."""
        self.called = 0
        """The last iteration whose step was called."""
        self.results: list[StepResult] = []
        """Results since the last activation step."""
        self._done = 0
        self._done_elsewhere: int | None = None  # steps of training before a turn
        self._step_s = LONGEST_JOB_S  # a step of the last job; unknown before the first
        self._calls: WeakValueDictionary[int, StepCall] = WeakValueDictionary()  # by iteration
        self._call: StepCall | None = None  # the newest, which is kept
        self._inputs: dict[int, Mapping[str, torch.Tensor]] = {}  # by iteration, where they change

    @property
    def call(self) -> StepCall:
        """The newest call."""
        assert self._call is not None, "a step was called"
        return self._call

    def begin(self) -> None:
        """Begin the loop, also after it was left early."""
        self.start = self._session.global_step
        self._done = self.called = 0
        self.results = []
        self._calls.clear()
        self._inputs.clear()

    def is_turn(self, step: Step, before: int) -> bool:
        """Return whether a step does not simply go on, after ``before`` iterations.

        Raises:
            ConfigError: The step is called twice in an iteration.
        """
        if self.step in (None, step) and self.called == before:
            return False
        if self.step is step and self.called > before:
            raise ConfigError(
                "a traced step is called twice in one iteration",
                code="step-called-twice",
                rule="an iteration has one batch, and a step of training its number",
                remedy="let the loader yield the batch twice, or trace a function for each call",
            )
        return True

    def turn(self, before: int) -> None:
        """Let another step begin after ``before`` iterations.

        Steps of training that take turns have the number of their iteration, each of its own job.
        """
        self._done = self.called = before
        self._done_elsewhere = self._session.steps.done
        self._session.steps.done = self.start + before

    def attach(
        self, step: Step, iteration: int, inputs: Mapping[str, torch.Tensor] | None
    ) -> StepCall:
        """Note the call of a step; ConfigError if the loop also trains or evaluates otherwise.

        ``inputs`` are values of ``Program.step_inputs`` from this iteration on.
        """
        if not step.kind.updates and self._done_elsewhere is not None:
            self._session.steps.done = self._done_elsewhere  # it counts no steps
        self._done_elsewhere = None
        if self.step is not None and self.step is not step:
            if not (self.step.kind.updates and step.kind.updates):
                raise ConfigError(
                    "a loop calls steps of training and of evaluation",
                    code="two-steps-in-one-loop",
                    remedy="evaluate in a second executor",
                )
            self._session.have_steps_turns = True
        self.step = step
        self.called = iteration
        self._call = self._calls.setdefault(iteration, StepCall(self._reader))
        if inputs:
            self._inputs[iteration] = inputs
        step.note_called(self.start + iteration)
        if self._session.host is not None:
            self._done = iteration  # the step runs at once
        return self._call

    def note_host_step(self, elapsed_s: float) -> None:
        """Take the result of the step that has just run in this process."""
        step = self.step
        assert step is not None, "it has run"
        self.profiler.rate_tracker.add(step.batch_size, elapsed_s)
        number = self._session.global_step if step.kind.updates else self._done
        call = self.call
        self.results.append(StepResult(number, call.values or (), None, None, call.loss_scale))

    def run(self) -> None:
        """Run all steps that were called and have not run yet, if steps are executed."""
        if self.step is None or not self._session.settings.is_e2e_execution:
            return
        while self._done < self.called:
            self._run_job(self.step, self._fed_job())

    def is_long(self, iteration: int) -> bool:
        """Return whether the steps up to an iteration would keep a loop that is to be left."""
        return (iteration - self._done) * self._step_s >= LONGEST_JOB_S

    def newest(self, iteration: int) -> int:
        """Return the newest iteration whose step has begun, in any thread; the loop is at one."""
        if self._session.host is not None:
            return iteration
        if self.step is not None and not self.step.kind.updates:
            return self._session.newest_batch
        return self._session.newest_step - self.start

    def _fed_job(self) -> int:
        """Feed the next step with its inputs; return how many steps may run with them as a job."""
        first = self._done + 1
        if first in self._inputs:
            self._session.feed(self._inputs.pop(first))
        return min((i for i in self._inputs if i <= self.called), default=self.called + 1) - first

    def _run_job(self, step: Step, count: int) -> None:
        """Run the next steps as one job of the cluster."""
        session = self._session
        before = session.global_step if step.kind.updates else self._done
        started_s = time.perf_counter()
        results = session.run(step.kind, before + 1, before + count, step.loss_scale)
        elapsed_s = time.perf_counter() - started_s
        self._step_s = elapsed_s / count
        self.profiler.add(results, step.batch_size, elapsed_s)
        self.results += results
        for iteration_done, result in enumerate(results, self._done + 1):
            if (call := self._calls.pop(iteration_done, None)) is not None:
                call.note(result)
        self._done += count
        step.note_done(session.global_step, results[-1].loss_scale)
