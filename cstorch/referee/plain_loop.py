"""A plain PyTorch loop: the whole batch, autograd, and torch's optimizer on fp32 weights."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cstorch.optim.optimizer import Optimizer
from cstorch.referee.draws import norms_of_micro_batches
from cstorch.referee.op_log import OpLog, RanStep
from cstorch.referee.rounds import RandomRounding, Rounds
from cstorch.witness import StepValues, copy_of
from memoryx.optim.rule import Parameter, State
from waferstream.compiler.capture.autocast import autocast
from waferstream.numerics.precision import StreamPrecision

LossOf = Callable[[nn.Module, Any, Any], torch.Tensor]
"""Returns the loss of a model, given its loss function and a batch."""


@dataclass(frozen=True)
class Training:
    """What a plain loop trains: model, optimizer and loss function, copied before a run began."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: Any
    loss_of: LossOf

    def copy(self) -> Training:
        """Return a copy that shares nothing but code with this one; hooks are kept."""
        memo: dict[int, Any] = {}
        model = copy.deepcopy(self.model, memo)
        for own, other in zip(self.model.parameters(), model.parameters(), strict=True):
            _copy_hooks(own, other)
        _share_as(self.model, model)
        for parameter in model.parameters():
            if parameter.dtype in (torch.bfloat16, torch.float16):  # a run has fp32 masters
                parameter.data = parameter.data.float()
        optimizer = self.optimizer
        if isinstance(optimizer, Optimizer):
            copied: torch.optim.Optimizer = RuleOfMemoryX(optimizer, memo)
        else:
            copied = copy.deepcopy(optimizer, memo)
            for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
                setattr(copied, name, OrderedDict(getattr(optimizer, name)))
        return Training(model, copied, copy.deepcopy(self.loss_fn, memo), self.loss_of)

    def steps(
        self, batches: Sequence[Any], rounds: Rounds, rounding: int | None = None
    ) -> Iterator[StepValues]:
        """Train on whole batches; yield the values after each step.

        Args:
            batches: A batch for each step.
            rounds: How the run that is compared rounds and draws.
            rounding: The seed of random rounding; None to round to nearest.
        """
        for step, batch in enumerate(batches, start=1):
            loss = self._backward(batch, rounds, step, rounding)
            self.optimizer.step()
            self.optimizer.zero_grad()
            yield StepValues(float(loss), copy_of(self.model.state_dict()))

    def pass_on(self, batch: Any, rounds: Rounds, step: int) -> RanStep:
        """Run the forward and backward pass of a step, which is not ended."""
        log = OpLog()
        with log:
            self._backward(batch, rounds, step)
        named = self.model.named_parameters()
        return RanStep(log.ops, {name: p.grad for name, p in named if p.grad is not None})

    def _backward(
        self, batch: Any, rounds: Rounds, step: int, rounding: int | None = None
    ) -> torch.Tensor:
        """Give the parameters the gradients of a batch; return its loss."""
        with self._in_stream_type(rounds.precision), like_a_run(rounds, step, rounding):
            loss = self.loss_of(self.model, self.loss_fn, batch)
            loss.backward()
        return loss.detach()

    @contextmanager
    def _in_stream_type(self, precision: StreamPrecision) -> Iterator[None]:
        """Give parameters the type in which they stream and compute; gradients become fp32."""
        if precision.stream == "float32":
            yield
            return
        masters = {p: p.data for p in self.model.parameters()}
        for parameter, master in masters.items():
            parameter.data = master.to(precision.stream_dtype).to(precision.compute_dtype)
        with autocast(precision):
            yield
        for parameter, master in masters.items():
            gradient, parameter.grad = parameter.grad, None
            parameter.data = master
            parameter.grad = None if gradient is None else gradient.to(master.dtype)


@contextmanager
def like_a_run(rounds: Rounds, step: int, rounding: int | None = None) -> Iterator[None]:
    """Draw, and normalize batches, as the micro-batches of a run; round at random with a seed."""
    with ExitStack() as stack:
        stack.enter_context(norms_of_micro_batches(rounds.cut))
        if rounding is not None:
            stack.enter_context(RandomRounding(rounding))
        stack.enter_context(rounds.draws(step))
        yield


def _copy_hooks(own: torch.Tensor, other: torch.Tensor) -> None:
    """Register the hooks of a parameter, which ``deepcopy`` leaves out, for its copy."""
    for hook in (own._backward_hooks or {}).values():
        other.register_hook(hook)
    for hook in (getattr(own, "_post_accumulate_grad_hooks", None) or {}).values():
        other.register_post_accumulate_grad_hook(hook)


def _share_as(model: nn.Module, copied: nn.Module) -> None:
    """Let parameters share memory where those of the model do: ``deepcopy`` gives each its own."""
    first: dict[int, torch.UntypedStorage] = {}
    for own, other in zip(model.parameters(), copied.parameters(), strict=True):
        storage = own.untyped_storage()
        place = storage.data_ptr()
        if storage.nbytes() > own.nbytes or place in first:
            shared = first.setdefault(place, storage.clone())
            other.data = other.data.new_empty(0).set_(
                shared,
                own.storage_offset(),
                own.shape,
                own.stride(),
            )
        elif place:
            first[place] = other.untyped_storage()


class RuleOfMemoryX(torch.optim.Optimizer):
    """The update of an optimizer of ``cstorch.optim``, which torch has not, or has otherwise.

    Args:
        optimizer: The optimizer.
        memo: The copy of each of its parameters, by ``id``.
    """

    def __init__(self, optimizer: Optimizer, memo: dict[int, Any]) -> None:
        self._rule = optimizer.rule
        groups = [
            {**optimizer.hyper(group), "params": [memo[id(p)] for p in group["params"]]}
            for group in optimizer.param_groups
        ]
        self._updates = 0
        super().__init__(groups, {})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy: torch's would forget the rule."""
        return {**super().__getstate__(), "_rule": self._rule, "_updates": self._updates}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        self._updates += 1
        for group in self.param_groups:
            hyper = {name: value for name, value in group.items() if name != "params"}
            trained = [p for p in group["params"] if p.grad is not None]
            self._rule.update(
                [Parameter(p.data, p.grad, self._state_of(p, hyper)) for p in trained],
                hyper,
                self._updates,
            )

    def _state_of(self, parameter: torch.Tensor, hyper: dict[str, Any]) -> State:
        """Return the state of a parameter, made at its first update."""
        state: State = self.state[parameter]
        if not state:
            shapes = self._rule.state_shapes(tuple(parameter.shape), hyper)
            for name, shape in shapes.items():
                state[name] = torch.full(shape, self._rule.initial_value(name, hyper))
        return state
