"""The decorator ``trace`` of a user's program.

The body of a traced step is recorded on its first call and compiled into a program of the cluster;
later calls return the same placeholders, whose values step closures receive after the step has run.
It is recorded again when the loop reads another loader, or when another step of the same kind has
taken its place on the cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from cstorch import flags, tracing
from cstorch.current import current_session
from cstorch.optim.state import state_of
from cstorch.recording.leaves import traits_of
from cstorch.recording.loop import Closure, Loop
from cstorch.recording.recorder import names_of
from cstorch.recording.step_value import StepValue
from cstorch.session.session import Session, model_of
from cstorch.tracing.call import Call
from cstorch.tracing.eager import EagerStep
from cstorch.tracing.fit import Fit
from cstorch.tracing.fitted_step import FittedStep, fit_step
from cstorch.tracing.forward import Forward
from cstorch.tracing.loss_result import loss_position
from cstorch.tracing.state_watch import StateWatch
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.installation import InputFeed

if TYPE_CHECKING:
    from cstorch.tracing.recording_step import Recordings
    from waferstream.compiler.capture.captured import Captured


def trace(function: Callable[..., Any]) -> TracedStep:
    """Decorate a step function: forward, ``loss.backward()``, clipping, optimizer, scheduler."""
    return TracedStep(function)


step = trace
"""The name of the decorator in lessons."""


@dataclass(frozen=True)
class _Surroundings:
    """What a step was installed with; where it is another, the program may be another."""

    source: Callable[[], Any]  # makes the loader
    constants: list[tuple[torch.Tensor, int]]  # buffers, and how often each was written
    traits: list[object]  # flags and hooks

    @classmethod
    def now(cls, session: Session, loop: Loop, fitted: FittedStep) -> _Surroundings:
        """Return those of a step that is fitted."""
        traits = traits_of(model_of(session), fitted.recorded.recorder.optimizer)
        return cls(loop.source, session.model.constants(), traits)

    def are(self, others: _Surroundings) -> bool:
        """Return whether constant buffers, flags and hooks are the same."""
        now, then = others.constants, self.constants
        return (
            self.traits == others.traits
            and len(now) == len(then)
            and all(
                a is b and version == before
                for (a, version), (b, before) in zip(now, then, strict=True)
            )
        )


class TracedStep:
    """A step function that runs on the cluster.

    Args:
        function: The function.
        forward: Its forward pass, where the rest of it can run alone.
    """

    def __init__(self, function: Callable[..., Any], forward: Forward | None = None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._forward = forward
        self._eager = EagerStep(function)  # on CPU and GPU
        self._name = ""  # of a decorated method
        self._fitted: FittedStep | None = None
        self._surroundings: _Surroundings | None = None
        self._watch: StateWatch | None = None  # of a step whose Python may read anything
        self._inputs: Mapping[str, torch.Tensor] = {}  # of the next step, where they change

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type | None = None) -> TracedStep:
        """Return the step of one object where a method is decorated: each has a trace of its own.

        It replaces the method in the object, which looks it up there from then on.
        """
        if instance is None:
            return self
        step = TracedStep(MethodType(self._function, instance))
        vars(instance)[self._name] = step
        return step

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step of a DataExecutor loop; return placeholders of its results."""
        session = current_session()
        loop = session.loop
        if loop is None:
            raise ApplianceCompilationError(
                "a traced step was called outside of an executor loop",
                code="step-outside-loop",
                remedy="iterate over cstorch.utils.data.DataExecutor and call the step inside",
            )
        if session.model.weights is not None:
            session.model.weights.adopt_replaced()
        if session.host is not None:
            loop.turn_to(self._eager)
            return self._eager.run(session, session.host, loop, args, kwargs)
        arguments = Call.of(self._function, args, kwargs)
        is_turn = loop.turn_to(self)
        then = self._surroundings
        if is_turn and then is not None and then.source is loop.source:
            self._take_turn(session, loop, arguments)
        if self._is_outdated(session, loop):
            self._install(session, loop, arguments)
            session.installed[self.kind] = (self, loop.source)
        else:
            self._installed.recorded.call.check_like(arguments)
            if flags.csx.debug.retrace_every_iteration:
                self._retrace(session, loop, arguments)
            elif self._watch is not None and self._watch.must_run():
                self._run_again(session, loop, arguments)
            self._renew_update(session, loop)
        self._note_gradients(session)
        call = loop.attach(self, self._inputs)
        self._inputs = {}  # they stay as they are
        outputs = self._installed.recorded.outputs
        return pytree.tree_map_only(StepValue, lambda value: value.of(call), outputs)

    @property
    def kind(self) -> ProgramKind:
        """``train`` or ``eval``."""
        return self._installed.compiled.program.kind

    @property
    def batch_size(self) -> int:
        """Samples of a global batch."""
        return self._installed.compiled.program.batch_size

    @property
    def closures(self) -> list[Closure]:
        """Step closures that were called inside the trace: repeated for every step."""
        return self._installed.recorded.recorder.closures

    def loss_position(self, closures: Sequence[Closure]) -> int | None:
        """Return the position of the loss among the results, None if it is unknown."""
        recorded, own = self._installed.recorded, [*self.closures, *closures]
        return loss_position(recorded.outputs, own, recorded.recorder.differentiable)

    @property
    def loss_scale(self) -> LossScale | None:
        """The loss scale of the next step, None if it is fixed."""
        scaler = self._installed.recorded.recorder.scaler
        return None if scaler is None else scaler.current

    def note_called(self, steps: int) -> None:
        """Set the step count of the schedulers that the step called."""
        self._installed.recorded.recorder.note_called(steps)

    def note_done(self, steps: int, loss_scale: LossScale | None) -> None:
        """Set the loss scale, and the counts of the optimizer and the schedulers of the step."""
        self._installed.recorded.recorder.note_done(steps, loss_scale)

    def compiled_for(
        self, size: int, *args: Any, **kwargs: Any
    ) -> tuple[Compiled, OptimizerSpec | None]:
        """Return the program for micro-batches of ``size`` samples, and the update after a step.

        The arguments are those of a call; nothing is installed and no loop is needed, so that a
        simulation reads the very program that a run executes. The compile cache is not used.
        """
        steps = tracing.recording_step
        call = Call.of(self._function, args, kwargs)
        recorded = steps.record_step(current_session(), call, size)
        compiled, _ = steps.compiled_at(recorded, Fit(Cut(size, 1)))
        return compiled, recorded.optimizer_of(compiled, 1)

    def recorded_at(self, size: int) -> Captured:
        """Return the graph that was recorded, for micro-batches of ``size`` samples.

        A step whose program came from the compile cache is recorded now.
        """
        recorded = self._installed.recorded
        recording = recorded.recording
        if recording is None:
            again = tracing.recording_step.record_step(recorded.session, recorded.call, size)
            recording = again.recording
        assert recording is not None, "it has just been made"
        return recording.at(size)

    @property
    def _installed(self) -> FittedStep:
        assert self._fitted is not None, "a step is called before it is asked for its program"
        return self._fitted

    def _install(self, session: Session, loop: Loop, call: Call) -> None:
        """Record the step, compile it and install it on the cluster."""
        is_known = self._forward is not None and self._forward.identity is not None
        self._watch = None if is_known else StateWatch(call, model_of(session))
        if self._watch is None:
            self._install_recorded(session, loop, call)
            return
        with self._watch.running() as state:
            self._install_recorded(session, loop, replace(call, state=state))

    def _install_recorded(
        self, session: Session, loop: Loop, call: Call, recordings: Recordings | None = None
    ) -> None:
        """Compile a step, from its recordings if there are some, and install it on the cluster."""
        session.settle()  # the steps called so far end with program and update as they were
        compiling = session.execution.trace.log.during("compile")
        with session.job_client.compiling(), compiling:
            fitted = fit_step(session, call, loop, self._forward, recordings)
        if session.when_compiled is not None:
            session.when_compiled(fitted.compiled, fitted.optimizer, loop.loading)
        self._check_counts(session, call, fitted)
        self._put_on_cluster(session, loop, call, fitted)

    def _take_turn(self, session: Session, loop: Loop, call: Call) -> None:
        """Install the program of the step again, after other steps or iterations without it."""
        fitted, recorder = self._installed, self._installed.recorded.recorder
        names, done = names_of(model_of(session)), session.global_step
        optimizer = recorder.spec(names, loop.last_step, done, session.steps.resumed)
        settings = recorder.settings()
        fitted = replace(fitted, optimizer=optimizer, settings=settings, num_steps=loop.last_step)
        self._put_on_cluster(session, loop, call, fitted)
        session.installed[self.kind] = (self, loop.source)

    def _put_on_cluster(self, session: Session, loop: Loop, call: Call, fitted: FittedStep) -> None:
        leaves = tuple(map(loop.position_of, call.tensors))
        feed = InputFeed(loop.source, leaves, loop.loading, loop.seed, loop.offset)
        self._fitted = fitted
        if session.settings.is_e2e_execution:
            state = fitted.compiled.program.state
            if session.model.adopt_state(state.used):
                session.installed.clear()  # other programs have read them as constants
            held = state_of(fitted.recorded.recorder.optimizer)
            session.install(
                *(fitted.compiled, feed, fitted.optimizer, held), num_steps=fitted.num_steps
            )
        self._surroundings = _Surroundings.now(session, loop, fitted)

    def _check_counts(self, session: Session, call: Call, fitted: FittedStep) -> None:
        """Refuse a step whose Python draws or counts for each sample of several micro-batches."""
        if self._watch is None or self._watch.has_checked_counts or fitted.fit is None:
            return
        assert call.state is not None, "a step that is watched begins in a known state"
        cut = fitted.fit.cut
        if cut.num_micro_batches > 1 and call.state.has_counted():
            tracing.recording_step.check_counts(session, call, cut.size)
            self._watch.has_checked_counts = True

    def _run_again(self, session: Session, loop: Loop, call: Call) -> None:
        """Run the body for this iteration, whose state in Python may be another one.

        If it records other constants, they become inputs of the program; if it records other ops,
        another program is installed.
        """
        watch = self._watch
        assert watch is not None, "its watch has asked for the run"
        with watch.running() as state:
            call = replace(call, state=state)
            again = tracing.run_again.RunAgain.of(session, call, self._installed)
            if again.keeps_program:
                self._fitted = again.kept()
            else:
                session.settle()
                self._check_counts(session, call, self._installed)
                with_inputs = again.with_inputs(loop.last_step)
                if with_inputs is None:
                    self._install_recorded(session, loop, call, again.recordings)
                else:
                    self._put_on_cluster(session, loop, call, with_inputs)
                session.installed[self.kind] = (self, loop.source)
            self._inputs = again.values(self._installed)
        if again.changed == set():
            watch.note_cost(again.seconds)
        else:
            watch.note_other_graph()

    def _retrace(self, session: Session, loop: Loop, call: Call) -> None:
        """Run the body again for this iteration: Python runs, the program stays as it is.

        Closures of the body get what it gives them now, and the update follows it.

        Raises:
            ApplianceCompilationError: The body records other ops than at first.
        """
        session.settle()  # the body sees the state after the steps called so far
        fitted = self._installed
        assert fitted.fit is not None, "a step that is to be traced again has no key"
        steps = tracing.recording_step
        recorded = steps.Recordings(session, call).of(fitted.fit.cut.size)
        optimizer = recorded.optimizer_of(fitted.compiled, loop.last_step)
        is_same = steps.digest_at(recorded, fitted.fit) == fitted.compiled.program.digest
        if not is_same or (optimizer is None) != (fitted.optimizer is None):
            raise ApplianceCompilationError(
                "a traced step must record the same ops in every iteration",
                code="step-ops-changed",
                where="csx.debug.retrace_every_iteration",
                rule="the cluster runs one program per loop",
                remedy="pass what changes as a tensor of the batch, or trace a function for each",
            )
        if (
            optimizer is not None
            and optimizer != fitted.optimizer
            and session.settings.is_e2e_execution
        ):
            session.execution.train_with(optimizer)
        self._fitted = replace(
            fitted,
            recorded=recorded,
            optimizer=optimizer,
            settings=recorded.recorder.settings(),
            num_steps=loop.last_step,
        )

    def _note_gradients(self, session: Session) -> None:
        """Note which gradients the call leaves; refuse one that adds to those of a call before."""
        recorded = self._installed.recorded
        if recorded.recording is not None and recorded.recorder.leaves is not None:
            session.gradients.note_call(
                self._function,
                model_of(session),
                recorded.recording.captured,
                recorded.recorder.leaves.taken,
            )

    def _is_outdated(self, session: Session, loop: Loop) -> bool:
        """Return whether the step is not on the cluster as it would be compiled now."""
        then = self._surroundings
        if then is None or (self, loop.source) not in session.installed.values():
            return True
        return not then.are(_Surroundings.now(session, loop, self._installed))

    def _renew_update(self, session: Session, loop: Loop) -> None:
        """Install the update again if the user has changed hyper-parameters or counts.

        The same where tables of hyper-parameters end before the loop does.
        """
        fitted, recorder = self._installed, self._installed.recorded.recorder
        if (state := state_of(recorder.optimizer)) is None:
            return
        state.adopt_replaced()
        settings = recorder.settings()
        if settings == fitted.settings and loop.last_step <= fitted.num_steps:
            return
        session.settle()  # the steps called so far end with the update as it was
        names, done = names_of(model_of(session)), session.global_step
        optimizer = recorder.spec(names, loop.last_step, done, session.steps.resumed)
        self._fitted = replace(
            fitted, optimizer=optimizer, settings=settings, num_steps=loop.last_step
        )
        if (
            optimizer is not None
            and optimizer != fitted.optimizer
            and session.settings.is_e2e_execution
        ):
            session.execution.train_with(optimizer)
