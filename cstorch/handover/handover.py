"""The model and the optimizer of a loop that is not ours, for as long as the cluster has them."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from cstorch import amp
from cstorch.compile import compile, unwrapped
from cstorch.current import existing_backend, replace_backend
from cstorch.handover.batches import HandedBatches
from cstorch.handover.between import Between
from cstorch.handover.constants import Constants
from cstorch.handover.outlines import Outlines
from cstorch.handover.recorder import Tape
from cstorch.handover.tape import Step
from cstorch.optim.taken import Taken
from cstorch.trace import TracedStep
from cstorch.tracing.clipping import recorded_clipping
from cstorch.trainer import CSConfig
from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.dataloader import DataLoader
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.compiler.capture.live_weights import PendingGradient, pending_gradient
from waferstream.core.errors import ApplianceCompilationError, ProgramOrderError

log = logging.getLogger("waferstream")


def hand_over(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    function: str = "forward",
    arguments: Callable[[Any, Any], Any] | None = None,
    recording: Callable[[], AbstractContextManager[None]] = nullcontext,
    **settings: Any,
) -> Handover:
    """Let a plain PyTorch loop over a model train on the cluster, until ``end`` is called.

        handover = cstorch.hand_over(model, optimizer, num_csx=4)
        ...the loop, unchanged...
        handover.end()  # the model is an ordinary one, with the trained weights

    Args:
        model: The model. What its ``function`` returns in training are deferred tensors; in
            evaluation, and under ``torch.no_grad``, it computes in this process with the newest
            weights.
        optimizer: torch's optimizer over the parameters of the model. Groups and learning rates
            are read at each step, so that any schedule may set them.
        function: The method of the model that computes what the loop takes the gradient of.
        arguments: Called with the positional and named arguments of a call in training; returns
            those that the function gets.
        recording: Makes a context in which the function is recorded.
        settings: Fields of ``CSConfig``.
    """
    return Handover(model, optimizer, function, arguments, recording, CSConfig(**settings))


class Handover:
    """A model and an optimizer that the cluster has."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        function: str,
        arguments: Callable[[Any, Any], Any] | None,
        recording: Callable[[], AbstractContextManager[None]],
        config: CSConfig,
    ) -> None:
        self.optimizer = optimizer
        self._function = function
        self._arguments = arguments or _unchanged
        self._recording = recording
        inner = unwrapped(model)
        self._own: Callable[..., Any] = getattr(inner, function)
        self._taken = Taken(optimizer)
        amp.enable_mixed_precision(False)  # as a plain loop: what it casts, it says
        self.backend = replace_backend("CSX", cluster_config=config.for_cluster(), seed=config.seed)
        self.backend.session.settings.logs_progress = False
        self.model = compile(inner, self.backend)
        self._outlines = Outlines(self.model, self._own_function)
        self._tape: Tape | None = None
        self._constants = Constants()
        self._programs: list[_Program] = []
        self._waiting = ExitStack()  # between the backward pass and the update
        self.backend.session.ends.callback(self._waiting.close)
        self._ends = ExitStack()
        self._ends.callback(optimizer.register_step_pre_hook(self._before_update).remove)
        self._ends.callback(optimizer.register_step_post_hook(self._after_update).remove)
        if model is not inner:  # what torch.compile has made calls the model as it is now
            self._ends.callback(setattr, model, "forward", model.forward)
            model.forward = inner.__call__
        setattr(inner, function, self._deferring())

    def end(self) -> None:
        """Fetch the weights into the model, and end the cluster. Idempotent."""
        self._ends.close()
        is_deferring = vars(self.model).pop(self._function, None) is not None
        for program in self._programs:
            program.batches.close()
        if existing_backend() is self.backend:
            self.backend.end_idle()
            if is_deferring and self._tape is not None:
                self._tape.write_buffers()

    def _deferring(self) -> Callable[..., Any]:
        """Return what stands in the place of the model's function."""

        @functools.wraps(self._own)
        def deferring(*args: Any, **kwargs: Any) -> Any:
            if not (self.model.training and torch.is_grad_enabled()):
                if self._tape is not None:
                    self._tape.check_alone()
                return self._own(*args, **kwargs)
            if self._tape is None:
                self._tape = Tape(self._outlines, Between(self.model), self._wait_for_update)
            with self._own_function():
                return self._tape.call_model(self._own, *self._arguments(args, kwargs))

        return deferring

    @contextmanager
    def _own_function(self) -> Iterator[None]:
        """Let the model have its own function while it is recorded."""
        deferring = vars(self.model).pop(self._function)
        try:
            with self._recording():
                yield
        finally:
            vars(self.model)[self._function] = deferring

    def _wait_for_update(self) -> None:
        """Note clipping, and refuse to read gradients, from the backward pass to the update."""
        assert self._tape is not None, "a backward pass is noted on a tape"
        trained = [p for p in self.model.parameters() if p.requires_grad]
        if any(isinstance(p.grad, PendingGradient) and not p.grad.is_cleared for p in trained):
            raise ApplianceCompilationError(
                "a step adds to the gradients of the step before",
                code="gradients-not-cleared",
                where=calling_line(),
                rule="MemoryX keeps no gradients between steps",
                remedy="call optimizer.zero_grad() in every step",
            )
        self._tape.between.note_backward()
        self._waiting.enter_context(recorded_clipping(self.model, self._tape))

    def _before_update(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Run the step on the cluster, in the place of torch's update, which finds no gradient."""
        if optimizer is not self.optimizer:
            return None  # the one that stands for it while the step is recorded
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        loss = closure() if closure is not None else None
        self._waiting.close()
        tape = self._taped()
        self._clear()
        self._run(tape)
        self._clear()
        return (args[:1], {"closure": lambda: loss} if closure is not None else {})

    def _after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Leave gradients that cannot be read, as torch leaves those that can."""
        if optimizer is self.optimizer:
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    parameter.grad = pending_gradient(parameter)

    def _clear(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None

    def _taped(self) -> Tape:
        """Return the tape of the step that is to run, and begin another one with the next call."""
        tape, self._tape = self._tape, None
        if tape is None or not tape.has_loss:
            raise ProgramOrderError(
                "an optimizer that was handed over must be stepped after a backward pass",
                code="update-without-backward",
                where=calling_line(),
                rule="its gradients come from loss.backward() of what the model returns in "
                "training; its parts, and the model in evaluation, compute in this process",
                remedy="call model(...) and loss.backward() before it"
                if self.model.training
                else "call model.train() before the loop, then .eval() of the parts that are "
                "to compute as in evaluation",
            )
        tape.between.check_update()
        return tape

    def _run(self, tape: Tape) -> None:
        if existing_backend() is not self.backend:
            raise ProgramOrderError(
                "a loop goes on after the end of its cluster",
                code="handover-ended",
                remedy="hand over model and optimizer again",
            )
        self._constants.check(tape.inputs, tape.beside)
        step = tape.step()
        program = self._program_of(step)
        self._taken.take(self.optimizer)
        with self._own_function():
            values = program.run(tape.inputs)
        session = self.backend.session
        names = session.trained
        trained = {p for name, p in self.model.named_parameters() if name in names}
        self._taken.check(trained)
        self._taken.give(self.optimizer, trained)
        tape.finish(dict(zip(step.kept, values, strict=True)))

    def _program_of(self, step: Step) -> _Program:
        for program in self._programs:
            if program.step == step:
                return program
        made = _Program(step, self._taken.optimizer, self.model)
        self._programs.append(made)
        return made


def _unchanged(args: Any, kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


class _Program:
    """A step of the loop as a traced step, with the loader from which it reads its batches."""

    def __init__(self, step: Step, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        self.step = step
        self.batches = HandedBatches()
        self._loader = DataLoader(self.batches)
        self._traced = TracedStep(_function_of(step, optimizer, model))

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run one step on a batch; return the values of the results that are kept."""
        self.batches.newest = list(inputs)
        results: Any = []
        for batch in DataExecutor(self._loader, 1):
            results = self._traced(*batch)
        return [result.tensor() for result in results]


def _function_of(
    step: Step, optimizer: torch.optim.Optimizer, model: nn.Module
) -> Callable[..., list[torch.Tensor]]:
    """Return a step as a function of its inputs, which a trace can record."""

    def training_step(*inputs: torch.Tensor) -> list[torch.Tensor]:
        results: dict[int, torch.Tensor] = {}
        for call in step.calls:
            results |= zip(sorted(call.results), call.run(inputs, results), strict=True)
        for number in step.losses:
            results[number].backward()
        for clip in step.clips:
            if clip.norm in step.kept:
                results[clip.norm] = _norm_of_gradients(model)
            if clip.limit < math.inf:  # else the loop asks for the norm alone
                _clipping(clip.kind)(model.parameters(), clip.limit)
        optimizer.step()
        return [results[number] for number in step.kept]

    return training_step


def _norm_of_gradients(model: nn.Module) -> torch.Tensor:
    """Return the norm of all gradients in a form of which MemoryX computes each part."""
    total = torch.zeros(())
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.norm().square()
    return total.sqrt()


def _clipping(kind: str) -> Callable[..., Any]:
    utils = torch.nn.utils
    return utils.clip_grad_norm_ if kind == "norm" else utils.clip_grad_value_
