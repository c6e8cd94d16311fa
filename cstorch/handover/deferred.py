"""A tensor whose value is known after the step: what a handed-over model returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from cstorch.remote.tensor import METADATA
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ApplianceCompilationError

_T: Any = torch.Tensor

_HOOKS = frozenset({_T.register_hook, _T.retain_grad, _T.register_post_accumulate_grad_hook})
_READING = (
    "item tolist numpy is_nonzero unique __array__ __bool__ __complex__ __contains__ __float__"
    " __index__ __int__ __iter__"
)
_READS = frozenset(getattr(_T, name) for name in _READING.split()) | {
    torch.equal,
    torch.allclose,
    torch.is_nonzero,
}
_BACKWARD = frozenset({_T.backward, torch.autograd.backward})


class Noting(Protocol):
    """The tape of a step, as its tensors see it."""

    @property
    def has_run(self) -> bool:
        """Whether the step has run, so that its results have values."""

    def value(self, number: int) -> torch.Tensor:
        """Return the value of a result; ApplianceCompilationError if it was not kept."""

    def early_value(self, number: int) -> torch.Tensor:
        """Return the value of a result before the step runs, computed in this process."""

    def note(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Note a call of a torch function on results; return deferred results of it."""

    def backward(self, loss: Deferred) -> None:
        """Note the backward pass from a loss."""


class Deferred(torch.Tensor):
    """A result of a step that has not run yet. Afterwards it is like the tensor of its value."""

    tape: Noting
    number: int
    outline: torch.Tensor
    """A fake tensor with the same shape, type and gradient."""
    former: type[torch.Tensor]
    """The class of a tensor of the loop that the step writes to."""

    @staticmethod
    def __new__(cls: type[Deferred], tape: Noting, number: int, outline: torch.Tensor) -> Deferred:
        made: Deferred = torch.Tensor._make_wrapper_subclass(
            cls, outline.shape, dtype=outline.dtype, requires_grad=outline.requires_grad
        )
        made.tape, made.number, made.outline = tape, number, outline
        return made

    @classmethod
    def adopt(
        cls, tensor: torch.Tensor, tape: Noting, number: int, outline: torch.Tensor
    ) -> Deferred:
        """Let a tensor stand for a result that is written to it; it may be deferred already."""
        if not isinstance(tensor, cls):
            former, tensor.__class__ = type(tensor), cls
            assert isinstance(tensor, cls)
            tensor.former = former
        tensor.tape, tensor.number, tensor.outline = tape, number, outline
        return tensor

    def release(self) -> None:
        """Let a tensor of the loop that was adopted be what it was."""
        self.__class__ = self.former  # type: ignore[assignment]
        del self.tape, self.number, self.outline, self.former

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in METADATA and func not in _HOOKS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        pending = [x for x in pytree.tree_leaves((args, kwargs)) if is_pending(x)]
        if not pending:
            args, kwargs = known((args, kwargs))
            return func(*args, **kwargs)
        if func in _READS:
            args, kwargs = _early((args, kwargs))
            return func(*args, **kwargs)
        if func is torch.autograd.grad:
            raise _to_some("torch.autograd.grad")
        if func in _BACKWARD:
            _backward(*args, **kwargs)
            return None
        args, kwargs = known((args, kwargs))
        return pending[0].tape.note(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # called with all of them
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise read_too_early(str(func))  # no torch function has let it pass

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if self.tape.has_run:
            return repr(self.tape.value(self.number))
        return f"<tensor {tuple(self.shape)} of a step that has not run yet>"

    def __format__(self, spec: str) -> str:
        return format(_early(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied: torch.Tensor = _early(self).clone()
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _early(self).__reduce_ex__(protocol)


def _backward(
    tensors: Any,
    gradients: Any = None,
    retain_graph: bool | None = None,  # noqa: ARG001  (a step has one backward pass)
    create_graph: bool = False,  # noqa: ARG001
    inputs: Any = None,
    **named: Any,
) -> None:
    """Note a backward pass, with the arguments of ``Tensor.backward`` or of autograd's function.

    It begins at one loss: the sum of the tensors, each times its gradient if that is given.

    Raises:
        ApplianceCompilationError: It leaves out parameters.
    """
    if inputs is not None:
        raise _to_some("inputs=...")
    gradients = named.get("gradient", named.get("grad_tensors", gradients))
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    given = [gradients] * len(roots) if gradients is None else gradients
    starts = [given] if isinstance(given, torch.Tensor) else given
    losses: list[Any] = [
        root if start is None else (root * start).sum()
        for root, start in zip(roots, starts, strict=True)
    ]
    loss = losses[0]
    for other in losses[1:]:
        loss = loss + other
    loss.tape.backward(loss)


def _to_some(what: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a backward pass must reach all parameters, and leave its gradients to the update",
        code="backward-to-some",
        where=calling_line(),
        value=what,
        rule="gradients of a step are those of its loss by every parameter that is trained",
        remedy="call loss.backward(); set requires_grad_(False) on other parameters before the "
        "model is called",
    )


def is_pending(value: object) -> bool:
    """Return whether a value is a result of a step that has not run yet."""
    return isinstance(value, Deferred) and not value.tape.has_run


def known(tree: Any) -> Any:
    """Replace results of steps that have run by their values."""
    return pytree.tree_map_only(
        Deferred, lambda x: x.tape.value(x.number) if x.tape.has_run else x, tree
    )


def _early(tree: Any) -> Any:
    """Replace results by their values, also where their step has not run."""

    def value(x: Deferred) -> torch.Tensor:
        return x.tape.value(x.number) if x.tape.has_run else x.tape.early_value(x.number)

    return pytree.tree_map_only(Deferred, value, tree)


def read_too_early(what: str) -> ApplianceCompilationError:
    """Return the error for a value that is read before its step has run."""
    return ApplianceCompilationError(
        "a result of the model is read before its step has run",
        code="deferred-read",
        where=calling_line(),
        value=what,
        rule="the step runs when optimizer.step() is called, and draws its random numbers there",
        remedy="read it after optimizer.step()",
    )
