"""Shapes and types of what a call would return, without computing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from cstorch.handover.deferred import Deferred
from cstorch.handover.tape import current_autocast, noted
from cstorch.tracing.call import outline
from cstorch.tracing.python_state import PythonState
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ApplianceCompilationError, WaferStreamError


class Outlines:
    """Fake tensors for the results of calls, among them those of one model.

    Args:
        model: The model.
        as_recorded: Makes a context in which it is as it is recorded, with its own function.
    """

    def __init__(
        self, model: nn.Module, as_recorded: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._model, self._as_recorded = model, as_recorded
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._known: tuple[object, PythonState, Any] | None = None
        self.writes_buffers = False
        """Whether the last call of the model writes to its buffers."""

    def of_call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return what a torch function returns, with fake tensors."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._fake, (args, kwargs))
        try:
            with self._mode, _as_captured():
                return function(*args, **kwargs)
        except Exception as error:
            raise _not_outlined(function, error) from error

    def of_model(self, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return what a function of the model returns, with fake tensors.

        What it leaves in Python is taken back: the same code is recorded later. It is called again
        where its arguments or its state in Python are others.
        """
        leaves, structure = pytree.tree_flatten((args, kwargs))
        key = (structure, [_key(leaf) for leaf in leaves], current_autocast())
        if self._known is None or self._known[0] != key or not self._known[1].is_current():
            state = PythonState(forward, self._model)
            returned = self._call_model(forward, args, kwargs)
            state.rewind()
            self._known = (key, state, returned)
        return self._known[2]

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Let the model have its own function inside the block, whose effects are taken back."""
        state, buffers = PythonState(self._model), [(b, b.clone()) for b in self._model.buffers()]
        with self._as_recorded():
            yield
        state.rewind()
        for buffer, value in buffers:
            buffer.copy_(value)

    def _call_model(self, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._fake, (args, kwargs))
        buffers = dict(self._model.named_buffers())
        named = {**dict(self._model.named_parameters()), **buffers}
        fakes = {name: self._fake(tensor) for name, tensor in named.items()}
        try:
            with (
                self._mode,
                _reparametrize_module(self._model, fakes, tie_weights=True),
                _as_captured(),
            ):
                returned = forward(*args, **kwargs)
                now = dict(self._model.named_buffers())
                self.writes_buffers = any(
                    now[name] is not fakes[name] or fakes[name]._version for name in buffers
                )
                return returned
        except WaferStreamError:
            raise
        except Exception as error:
            raise _not_outlined(forward, error) from error

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, Deferred):
            return tensor.outline
        with torch._C.DisableTorchFunctionSubclass(), self._mode:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            return fake.requires_grad_(tensor.requires_grad)


@contextmanager
def _as_captured() -> Iterator[None]:
    """Let fake tensors follow the rules of a capture, which makes checks of values later."""
    from waferstream.compiler.capture.shape_rules import own_shape_rules  # noqa: PLC0415  (slow)
    from waferstream.compiler.capture.traceable import traceable_forms  # noqa: PLC0415
    from waferstream.compiler.capture.value_checks import ValueChecks  # noqa: PLC0415

    with own_shape_rules(), traceable_forms(), ValueChecks().noting():
        yield


def _key(leaf: object) -> object:
    """Return the part of an argument on which the outlines of results depend."""
    return outline(leaf) if isinstance(leaf, torch.Tensor) else noted(leaf)


def _not_outlined(function: Callable[..., Any], error: Exception) -> ApplianceCompilationError:
    name = getattr(function, "__qualname__", str(function))
    return ApplianceCompilationError(
        "what a step computes depends on values of tensors, or fails",
        code="step-not-outlined",
        where=calling_line(),
        value=f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
        rule="a step is recorded without values, and runs when optimizer.step() is called",
        remedy="make shapes and branches independent of values",
    )
