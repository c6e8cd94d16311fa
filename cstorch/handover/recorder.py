"""The tape of one step of a loop: calls of the model, ops on what it returns, backward passes."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.handover.between import Between
from cstorch.handover.deferred import Deferred, is_pending, read_too_early
from cstorch.handover.outlines import Outlines
from cstorch.handover.tape import (
    Clip,
    Fixed,
    Input,
    NotedCall,
    Result,
    Step,
    Written,
    copy_of,
    current_autocast,
    noted,
    writes,
)
from cstorch.tracing.call import outline
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ApplianceCompilationError

log = logging.getLogger("waferstream")

LARGEST_KEPT_BYTES = 16 * 1024 * 1024
"""Results beyond this size do not come back from the cluster: logits of a language model."""

_LARGEST_FIXED = 4096
"""Elements of a tensor that is no part of the batch."""


class Tape:
    """The calls of a step, up to ``optimizer.step()``."""

    def __init__(self, outlines: Outlines, between: Between, started: Callable[[], None]) -> None:
        self.inputs: list[torch.Tensor] = []
        self.beside: set[int] = set()
        """The inputs that no call of the model takes."""
        self.has_run = False
        self.between = between
        self._outlines, self._started = outlines, started
        self._calls: list[NotedCall] = []
        self._after: list[NotedCall] = []
        self._losses: list[int] = []
        self._clips: list[Clip] = []
        self._norms: set[int] = set()  # results that are norms of gradients
        self._results: list[Callable[[], Deferred | None]] = []
        self._values: Mapping[int, torch.Tensor] = {}
        self._early: dict[int, torch.Tensor] = {}
        self._drawn: set[int] = set()  # results that were read and have drawn random numbers
        self._writing: set[int] = set()  # results of calls that write to buffers of the model
        self._rows: int | None = None

    def call_model(self, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Note a call of the model; return what it returns, with deferred tensors."""
        self.between.check_call()
        returned = self._add(forward, args, kwargs, self._outlines.of_model(forward, args, kwargs))
        self.beside -= {x.number for x in self._calls[-1].leaves if isinstance(x, Input)}
        if self._outlines.writes_buffers:
            self._writing |= self._calls[-1].results
        return returned

    def check_alone(self) -> None:
        """Refuse to call the model in this process, with buffers that the step is yet to write.

        Raises:
            ApplianceCompilationError: A call of the step writes to some.
        """
        if self._writing:
            raise ApplianceCompilationError(
                "a model computes in this process, and a call of it in training is yet to write to "
                "its buffers",
                code="buffers-behind",
                where=calling_line(),
                rule="the step runs when optimizer.step() is called, and updates statistics there",
                remedy="call the model after optimizer.step(), and under torch.no_grad() where no "
                "step follows",
            )

    def write_buffers(self) -> None:
        """Run the calls of a step that nothing follows, if they write to buffers of the model."""
        results: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            for call in self._calls if self._writing else ():
                if not any(isinstance(leaf, Written) for leaf in call.leaves):
                    own = call.run(self.inputs, results)
                    results |= zip(sorted(call.results), own, strict=True)

    def note(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if isinstance(kwargs.get("out"), torch.Tensor):
            raise _written(function)
        if function is torch.Tensor.__setitem__:
            function = set_item_
        return self._add(function, args, kwargs, self._outlines.of_call(function, args, kwargs))

    def backward(self, loss: Deferred) -> None:
        if self._losses and self.between.holds_gradients:
            raise ApplianceCompilationError(
                "gradients of several backward passes are added up",
                code="handed-over-accumulation",
                where=calling_line(),
                rule="the cluster cuts a batch of any size in micro-batches, and adds them up",
                remedy="let the loader yield the whole batch, with gradient accumulation of 1, and "
                "add losses of one batch before the backward pass",
            )
        self._clips.clear()  # those of a step that was left out, whose gradients were cleared
        self._losses[:] = [loss.number]
        self._started()

    def clip_norm(self, max_norm: float) -> Deferred:
        """Note that gradients are clipped by their norm; return that norm before."""
        norm = self._deferred(self._outlines.of_call(torch.zeros, ((),), {}))
        self._norms.add(norm.number)
        self._clips.append(Clip("norm", float(max_norm), norm.number))
        return norm

    def clip_value(self, max_value: float) -> None:
        """Note that gradients are clipped by their values."""
        self._clips.append(Clip("value", float(max_value)))

    @property
    def has_loss(self) -> bool:
        """Whether there was a backward pass."""
        return bool(self._losses)

    def step(self) -> Step:
        """Return what the loop has done, apart from what is done here after the step.

        That is what the gradient does not depend on, and reads more than the batch: sums over
        steps, which would make each step another one.
        """
        needed, own = self._of_update(), set(range(len(self._results))) - self._norms
        if needed & self._drawn:
            raise read_too_early("random numbers")
        calls: list[NotedCall] = []
        for call in self._calls:
            if call.results.isdisjoint(needed) and call.results <= self._early.keys():
                own -= call.results  # it was read, and is nothing to the update
            elif call.results.isdisjoint(needed) and not (call.is_of_batch and call.reads <= own):
                own -= call.results
                self._after.append(self._on_copies(call, calls, own))
            else:
                calls.append(call)
        read = {number for call in self._after for number in call.reads}
        own |= {clip.norm for clip in self._clips[:1]} & self._norms  # nothing has clipped before
        kept = [i for i in sorted(own) if i in read or self._is_kept(i)]
        shapes = tuple(outline(tensor) for tensor in self.inputs)
        return Step(calls, self._losses, self._clips, tuple(kept), shapes)

    def _on_copies(self, call: NotedCall, calls: list[NotedCall], own: set[int]) -> NotedCall:
        """Let a call after the step read results as they are at its place among the calls."""
        if not any(other.writes_result for other in self._calls):
            return call
        copies = {}
        for number in sorted(call.reads & own):
            copies[number] = len(self._results)
            self._results.append(_gone)
            calls.append(copy_of(number, copies[number]))
        own |= set(copies.values())
        return call.reading(copies)

    def _is_kept(self, number: int) -> bool:
        """Return whether a loop still holds a result, which is not too large."""
        result = self._results[number]()
        if result is None or result.number != number:
            return False
        return result.numel() * result.element_size() <= LARGEST_KEPT_BYTES

    def _of_update(self) -> set[int]:
        """Return the results of the calls on which the gradient and the buffers depend."""
        needed = {*self._losses, *self._writing}
        for call in reversed(self._calls):
            if not call.results.isdisjoint(needed):
                needed |= call.reads | call.results
                if any(isinstance(leaf, Written) for leaf in call.leaves):
                    raise _written(call.function)
        return needed

    def finish(self, values: dict[int, torch.Tensor]) -> None:
        """Give the results that are kept their values, and do what is left to do."""
        values = {**self._early, **values}
        for call in self._after:
            values |= zip(sorted(call.results), call.run(self.inputs, values), strict=True)
        self.has_run, self._values = True, values
        self._calls, self._after, self._early = [], [], {}
        self.inputs.clear()

    def value(self, number: int) -> torch.Tensor:
        if number in self._norms and number not in self._values:
            raise _unknown_norm()
        if number not in self._values:
            raise ApplianceCompilationError(
                "a large result of a step was not kept",
                code="deferred-not-kept",
                where=calling_line(),
                rule=f"results of up to {LARGEST_KEPT_BYTES >> 20} MiB come back from the cluster",
                remedy="reduce it before optimizer.step(), for example to an accuracy",
            )
        return self._values[number]

    def early_value(self, number: int) -> torch.Tensor:
        if not self._early:
            log.info(
                "A result is read before optimizer.step(), and computed in this process;"
                " after optimizer.step() it costs nothing"
            )
        unknown = set(self._norms)
        with torch.no_grad(), self._outlines.undone():
            for call in self._calls:
                if not call.reads.isdisjoint(unknown):
                    unknown |= call.results
                elif call.results.isdisjoint(self._early) and number not in self._early:
                    before = torch.get_rng_state()
                    own = call.run(self.inputs, self._early)
                    self._early |= zip(sorted(call.results), own, strict=True)
                    if not torch.equal(torch.get_rng_state(), before):
                        self._drawn |= call.results
        if number in unknown:
            raise read_too_early("the norm of the gradients")
        return self._early[number]

    def _add(self, function: Callable[..., Any], args: Any, kwargs: Any, returned: Any) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        target = leaves[0] if writes(function) else None
        is_of_loop = isinstance(target, torch.Tensor) and not is_pending(target)
        noted_leaves = tuple(
            Written(x) if is_of_loop and x is target else self._argument(x) for x in leaves
        )
        own, tree = pytree.tree_flatten(returned)
        if not isinstance(target, torch.Tensor):
            deferred = [self._deferred(x) if isinstance(x, torch.Tensor) else x for x in own]
        else:
            deferred = [self._adopted(target, own[0])]
        results = frozenset(x.number for x in deferred if isinstance(x, Deferred))
        call = NotedCall(function, noted_leaves, structure, current_autocast(), results)
        self._calls.append(call)
        if isinstance(target, torch.Tensor) and target._base is not None:
            self.note(written_through_, (target._base, target), {})
        return pytree.tree_unflatten(deferred, tree)

    def _deferred(self, tensor: torch.Tensor) -> Deferred:
        made = Deferred(self, len(self._results), tensor)
        self._results.append(weakref.ref(made))
        return made

    def _adopted(self, target: torch.Tensor, outline: torch.Tensor) -> Deferred:
        adopted = Deferred.adopt(target, self, len(self._results), outline)
        self._results.append(weakref.ref(adopted))
        return adopted

    def _argument(self, leaf: object) -> object:
        if is_pending(leaf):
            assert isinstance(leaf, Deferred)
            if leaf.tape is not self:
                raise _of_another_step()
            return Result(leaf.number)
        if not isinstance(leaf, torch.Tensor):
            return noted(leaf)
        if leaf.requires_grad:
            raise _outside_model()
        if leaf.ndim and self._rows in (None, leaf.shape[0]):
            return self._input(leaf)
        if leaf.numel() > _LARGEST_FIXED:
            raise _not_of_batch(leaf, self._rows)
        return Fixed(leaf)

    def _input(self, tensor: torch.Tensor) -> Input:
        self._rows = tensor.shape[0]
        for number, known in enumerate(self.inputs):
            if known is tensor:
                return Input(number)
        self.beside.add(len(self.inputs))
        self.inputs.append(tensor)
        return Input(len(self.inputs) - 1)


def _gone() -> None:
    """Stand for a reference to a tensor that no loop holds."""


def set_item_(target: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    """Write to an item of a tensor; return the tensor, as torch's functions that write do."""
    target[key] = value
    return target


def written_through_(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    """Return a tensor of which a view was written to."""
    return base


def _unknown_norm() -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a norm is read of gradients that no update takes as they were",
        code="norm-unknown",
        where=calling_line(),
        rule="MemoryX has the norm of the gradients of an update, before it clips them",
        remedy="clip once, and read what clip_grad_norm_ returns after optimizer.step()",
    )


def _written(function: Callable[..., Any]) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a loss depends on a tensor of the loop that the step writes to",
        code="deferred-written",
        where=calling_line(),
        value=getattr(function, "__name__", str(function)),
        rule="what a gradient depends on is computed on the cluster",
        remedy="make a new tensor (total = total + loss)",
    )


def _of_another_step() -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a result is used of an earlier step that has not run",
        code="deferred-of-earlier-step",
        where=calling_line(),
        rule="a step runs when optimizer.step() is called, and not where it has failed",
        remedy="call the model again",
    )


def _outside_model() -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a loss depends on weights that were used outside of the model's forward",
        code="weight-outside-forward",
        where=calling_line(),
        rule="the model's forward is what streams weights; gradients elsewhere would be lost",
        remedy="compute it in forward, and return it as a part of the output",
    )


def _not_of_batch(tensor: torch.Tensor, rows: int | None) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a tensor of a step is neither of the batch nor a small constant",
        code="tensor-not-of-batch",
        where=calling_line(),
        value=f"shape {tuple(tensor.shape)}",
        rule=f"dimension 0 of a tensor of the batch is its size, {rows}; "
        f"others have at most {_LARGEST_FIXED} elements",
        remedy="make it a buffer of the model, or give it a row for each sample",
    )
