"""``cstorch.trace``: turn a step function into a program of the cluster.

The body is recorded on its first call; later calls return the same placeholders, whose values step
closures receive after the step has run. It is recorded again when the loop reads another loader,
or when another step of the same mode has taken its place on the cluster.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from cstorch.backend import Backend, current_backend
from cstorch.compile import (
    Fit,
    compile_request,
    first_size,
    fit_to_wafer,
    log_compiled,
    model_of,
)
from cstorch.loop import Closure, Loop
from cstorch.optim.clipping import recorded_clipping
from cstorch.optim.recorder import RecordedScheduler, Recorder, recording
from cstorch.step_values import StepValue
from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.compile import compile_step
from wsc.compiler.compiled import Compiled
from wsc.core.errors import ApplianceCompilationError
from wsc.core.installation import InputFeed
from wsc.core.loading import Loading
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode

log = logging.getLogger("waferstream")


@dataclass
class Trace:
    """What a step hands out while it is traced."""

    results: list[torch.Tensor] = field(default_factory=list)
    closures: list[Closure] = field(default_factory=list)

    def hand_out(self, tree: Any) -> Any:
        """Make every tensor in a pytree a result of the step; returns placeholders."""
        return pytree.tree_map_only(torch.Tensor, self._result, tree)

    def _result(self, tensor: torch.Tensor) -> StepValue:
        if tensor.numel() != 1:
            raise ApplianceCompilationError(
                "a traced step returns a tensor that is not a scalar",
                value=f"shape {tuple(tensor.shape)}",
                rule="results of a step are scalars, averaged over its micro-batches",
                remedy="reduce it inside the step (mean, sum, ...)",
            )
        self.results.append(tensor)
        return StepValue(len(self.results) - 1)


active_trace: ContextVar[Trace | None] = ContextVar("active_trace", default=None)


@dataclass(frozen=True)
class _Call:
    """A call of a step function, whose tensors can be put in anew."""

    function: Callable[..., Any]
    leaves: list[Any]
    structure: pytree.TreeSpec

    @classmethod
    def of(cls, function: Callable[..., Any], args: Any, kwargs: Any) -> _Call:
        """ApplianceCompilationError if no argument holds a tensor."""
        call = cls(function, *pytree.tree_flatten((args, kwargs)))
        if not call.tensors:
            raise ApplianceCompilationError(
                "the traced step takes no tensor of the batch",
                rule="what it reads of the batch is passed to it",
                remedy="call it with the batch that the executor yields",
            )
        return call

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, batch: Sequence[torch.Tensor]) -> Any:
        tensors = iter(batch)
        filled = [next(tensors) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(filled, self.structure)
        return self.function(*args, **kwargs)


class TracedStep:
    """A step function that runs on the cluster."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._outputs: Any = None
        self.mode: Mode
        self.batch_size: int
        self.closures: list[Closure] = []
        self._schedulers: Sequence[RecordedScheduler] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask for one step; only inside a DataExecutor loop."""
        backend = current_backend()
        loop = backend.loop
        if loop is None:
            raise ApplianceCompilationError(
                "a traced step was called outside of an executor loop",
                remedy="iterate over cstorch.utils.data.DataExecutor and call the step inside",
            )
        if (self, loop.source) not in backend.installed.values():
            self._install(backend, loop, args, kwargs)
            backend.installed[self.mode] = (self, loop.source)
        loop.attach(self)
        return self._outputs

    def note_done(self, steps: int) -> None:
        """So many steps of training have been done; its schedulers count them."""
        for scheduler in self._schedulers:
            scheduler.note_done(steps)

    def compiled_for(
        self, size: int, *args: Any, **kwargs: Any
    ) -> tuple[Compiled, OptimizerSpec | None]:
        """The program for micro-batches of ``size`` samples, and the update that follows a step.

        The arguments are those of a call; nothing is installed and no loop is needed, so that a
        simulation sees the very program that a run would. The compile cache is not used.
        """
        backend = current_backend()
        call = _Call.of(self._function, args, kwargs)
        recorded = _record(backend, call, Fit(size))
        return recorded.compiled, recorded.optimizer

    def _install(self, backend: Backend, loop: Loop, args: Any, kwargs: Any) -> None:
        call = _Call.of(self._function, args, kwargs)
        leaves = tuple(map(loop.position_of, call.tensors))
        feed = InputFeed(loop.source, leaves, loop.loading)
        recorded = _record_fitting(backend, call, loop.loading)
        program = recorded.compiled.program
        self._outputs = recorded.outputs
        self.mode = program.mode
        self.batch_size = program.batch_size
        self.closures = recorded.closures
        self._schedulers = recorded.recorder.schedulers
        if backend.is_e2e_execution:
            backend.install(recorded.compiled, feed, recorded.optimizer)


def trace(function: Callable[..., Any]) -> TracedStep:
    """Decorate a step function: forward, ``loss.backward()``, clipping, optimizer, scheduler."""
    return TracedStep(function)


@dataclass(frozen=True)
class _Recorded:
    """A traced step, compiled for one micro-batch size."""

    compiled: Compiled
    was_cached: bool
    outputs: Any  # what the step returns to the loop: placeholders
    closures: list[Closure]
    recorder: Recorder
    optimizer: OptimizerSpec | None  # None if the step trains nothing


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
    trace = Trace()
    outputs: Any = None

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        nonlocal outputs
        token = active_trace.set(trace)
        try:
            outputs = trace.hand_out(call(batch))
        finally:
            active_trace.reset(token)
        return trace.results

    model = model_of(backend)
    inputs, request = compile_request(backend, call.tensors, fit)
    with recording() as recorder, recorded_clipping(model, recorder):
        compiled, was_cached = compile_step(step, model, inputs, request, cache)
    optimizer = _optimizer_of(model, recorder, compiled)
    return _Recorded(compiled, was_cached, outputs, trace.closures, recorder, optimizer)


def _optimizer_of(model: nn.Module, recorder: Recorder, compiled: Compiled) -> OptimizerSpec | None:
    """Return the optimizer of a step, None if it trains nothing.

    Raises ApplianceCompilationError for gradients that no optimizer takes.
    """
    optimizer = recorder.spec({parameter: name for name, parameter in model.named_parameters()})
    if compiled.program.mode == "train" and optimizer is None:
        raise ApplianceCompilationError(
            "the step computes gradients but steps no optimizer",
            code="gradients-without-optimizer",
            remedy="call optimizer.step() after loss.backward(), or leave backward() out",
        )
    return optimizer
