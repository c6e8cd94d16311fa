"""The decorator ``trace`` of a user's program.

The body of a traced step is recorded on its first call and compiled into a program of the cluster;
later calls return the same placeholders, whose values step closures receive after the step has run.
It is recorded again when the loop reads another loader, or when another step of the same mode has
taken its place on the cluster.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.backend import Backend
from cstorch.compile import (
    Fit,
    compile_request,
    first_size,
    fit_to_wafer,
    log_compiled,
    model_of,
)
from cstorch.current import current_backend
from cstorch.eager import EagerStep
from cstorch.host import HostBackend
from cstorch.listeners import traced_tensors
from cstorch.loop import Closure, Loop
from cstorch.recorder import Recorder, names_of, recorded_clipping, recording, update_of
from cstorch.step_value import StepValue
from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.compile import compile_step
from wsc.compiler.compiled import Compiled
from wsc.core.errors import ApplianceCompilationError
from wsc.core.installation import InputFeed
from wsc.core.loading import Loading
from wsc.core.loss_scale import LossScale
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode

log = logging.getLogger("waferstream")


def trace(function: Callable[..., Any]) -> TracedStep:
    """Decorate a step function: forward, ``loss.backward()``, clipping, optimizer, scheduler."""
    return TracedStep(function)


class TracedStep:
    """A step function that runs on the cluster."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._eager = EagerStep(function)  # on CPU and GPU
        self._recorded: _Recorded | None = None

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
        """Run one step of a DataExecutor loop; returns placeholders of its results."""
        backend = current_backend()
        loop = backend.loop
        if loop is None:
            raise ApplianceCompilationError(
                "a traced step was called outside of an executor loop",
                code="step-outside-loop",
                remedy="iterate over cstorch.utils.data.DataExecutor and call the step inside",
            )
        if backend.weights is not None:
            backend.weights.adopt_replaced()
        if isinstance(backend, HostBackend):
            return self._eager.run(backend, loop, args, kwargs)
        if (self, loop.source) not in backend.installed.values() or self._is_outdated(backend):
            self._install(backend, loop, _Call.of(self._function, args, kwargs))
            backend.installed[self.mode] = (self, loop.source)
        else:
            self._renew_update(backend, loop)
        call = loop.attach(self)
        outputs = self._installed.outputs
        return pytree.tree_map_only(StepValue, lambda value: value.of(call), outputs)

    @property
    def mode(self) -> Mode:
        """``train`` or ``eval``."""
        return self._installed.compiled.program.mode

    @property
    def batch_size(self) -> int:
        """Samples of a global batch."""
        return self._installed.compiled.program.batch_size

    @property
    def closures(self) -> list[Closure]:
        """Step closures that were called inside the trace: repeated for every step."""
        return self._installed.recorder.closures

    @property
    def loss_scale(self) -> LossScale | None:
        """The loss scale of the next step, None if it is fixed."""
        scaler = self._installed.recorder.scaler
        return None if scaler is None else scaler.current

    def note_called(self, steps: int) -> None:
        """Set the step count of the schedulers that the step called."""
        self._installed.recorder.note_called(steps)

    def note_done(self, steps: int, loss_scale: LossScale | None) -> None:
        """Set the loss scale, and the counts of the optimizer and the schedulers of the step."""
        self._installed.recorder.note_done(steps, loss_scale)

    def compiled_for(
        self, size: int, *args: Any, **kwargs: Any
    ) -> tuple[Compiled, OptimizerSpec | None]:
        """Return the program for micro-batches of ``size`` samples, and the update after a step.

        The arguments are those of a call; nothing is installed and no loop is needed, so that a
        simulation reads the very program that a run executes. The compile cache is not used.
        """
        recorded = _record(current_backend(), _Call.of(self._function, args, kwargs), Fit(size))
        return recorded.compiled, recorded.optimizer

    @property
    def _installed(self) -> _Recorded:
        assert self._recorded is not None, "a step is called before it is asked for its program"
        return self._recorded

    def _install(self, backend: Backend, loop: Loop, call: _Call) -> None:
        leaves = tuple(map(loop.position_of, call.tensors))
        feed = InputFeed(loop.source, leaves, loop.loading, loop.seed, loop.offset)
        recorded = _record_fitting(backend, call, loop.loading)
        self._recorded = recorded
        if backend.is_e2e_execution:
            state = recorded.compiled.program.state
            if backend.adopt_state([spec.name for spec in (*state.reads, *state.writes)]):
                backend.installed.clear()  # other programs have read them as constants
            held = recorded.recorder.optimizer_state
            backend.install(recorded.compiled, feed, recorded.optimizer, held)
        self._constants = backend.constants()

    def _is_outdated(self, backend: Backend) -> bool:
        """Return whether the program was compiled with other values of constant buffers."""
        now, then = backend.constants(), self._constants
        return len(now) != len(then) or any(
            a is not b or version != before
            for (a, version), (b, before) in zip(now, then, strict=True)
        )

    def _renew_update(self, backend: Backend, loop: Loop) -> None:
        """Install the update again if the user has changed hyper-parameters or counts.

        The same where tables of hyper-parameters end before the loop does.
        """
        recorded, recorder = self._installed, self._installed.recorder
        if recorder.optimizer_state is None:
            return
        recorder.optimizer_state.adopt_replaced()
        settings = recorder.settings()
        if settings == recorded.settings and loop.last_step <= recorded.num_steps:
            return
        backend.settle()  # the steps called so far end with the update as it was
        names, done = names_of(model_of(backend)), backend.global_step
        optimizer = recorder.spec(names, loop.last_step, done)
        self._recorded = replace(
            recorded, optimizer=optimizer, settings=settings, num_steps=loop.last_step
        )
        if optimizer is not None and optimizer != recorded.optimizer and backend.is_e2e_execution:
            backend.train_with(optimizer)


@dataclass(frozen=True)
class _Call:
    """A call of a step function, whose tensors can be replaced."""

    function: Callable[..., Any]
    leaves: list[Any]
    structure: pytree.TreeSpec

    @classmethod
    def of(cls, function: Callable[..., Any], args: Any, kwargs: Any) -> _Call:
        """Flatten the arguments; ApplianceCompilationError if none of them holds a tensor."""
        call = cls(function, *pytree.tree_flatten((args, kwargs)))
        if not call.tensors:
            raise ApplianceCompilationError(
                "the traced step takes no tensor of the batch",
                code="step-without-tensor",
                rule="the tensors of the batch that it reads are its arguments",
                remedy="call it with the batch that the executor yields",
            )
        return call

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in pytree order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, batch: Sequence[torch.Tensor]) -> Any:
        """Call the function with other tensors in the places of its own."""
        tensors = iter(batch)
        filled = [next(tensors) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(filled, self.structure)
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class _Recorded:
    """A traced step, compiled for one micro-batch size."""

    compiled: Compiled
    was_cached: bool
    outputs: Any  # the placeholders that the step returns to the loop
    recorder: Recorder
    optimizer: OptimizerSpec | None  # None if the step trains nothing
    settings: list[object]  # of the recorder when the update was read
    num_steps: int  # that the schedules of the optimizer cover


def _record_fitting(backend: Backend, call: _Call, loading: Loading) -> _Recorded:
    """Record a step at the micro-batch size that policy and wafer allow.

    Raises ConfigError where the batch cannot be cut, ApplianceResourceExhausted where nothing fits.
    """

    def record_at(size: int) -> tuple[Compiled, OptimizerSpec | None]:
        recorded = _record(backend, call, Fit(size))
        return recorded.compiled, recorded.optimizer

    batch_size = call.tensors[0].shape[0]
    cache = None if backend.validate_only else backend.cache
    log.info("Compiling the model. This may take a few minutes.")
    first = Fit(first_size(backend, batch_size, record_at, loading))
    recorded = _record(backend, call, first, cache)
    fit = fit_to_wafer(backend, recorded.compiled.program, batch_size)
    if fit != first:
        recorded = _record(backend, call, fit, cache)
    log_compiled(backend, recorded.compiled.program, was_cached=recorded.was_cached)
    return recorded


def _record(
    backend: Backend, call: _Call, fit: Fit, cache: ArtifactCache | None = None
) -> _Recorded:
    """Trace and compile the step; without a cache nothing is looked up or kept."""
    outputs: Any = None

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        nonlocal outputs
        outputs = recorder.hand_out(call(batch))
        return recorder.results

    model = model_of(backend)
    inputs, request = compile_request(backend, call.tensors, fit)
    with recording() as recorder, recorded_clipping(model, recorder), traced_tensors(model):
        compiled, was_cached = compile_step(
            step, model, inputs, request, cache, backend.traced_buffers()
        )
    num_steps = 1 if backend.loop is None else backend.loop.last_step
    trains = compiled.program.mode == "train"
    optimizer = update_of(recorder, model, num_steps, trains, backend.global_step)
    settings = recorder.settings()
    return _Recorded(compiled, was_cached, outputs, recorder, optimizer, settings, num_steps)
