"""Gradients that earlier steps have left: a step that does not clear them would add to them.

While a step is traced, every weight begins with a ``PendingGradient``, as a parameter does after a
step of a plain loop. Whatever clears it (``zero_grad`` of an optimizer or a module, ``p.grad =
None``) so is seen; one that a backward pass still finds is carried over from the step before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from waferstream.compiler.capture.node_marks import node_of, running_graph
from waferstream.compiler.ops import op_name
from waferstream.core.errors import ApplianceCompilationError

_T: Any = torch.Tensor
_OF_ZERO_GRAD = (_T.detach_, _T.requires_grad_, _T.grad_fn.__get__)


class PendingGradient(torch.Tensor):
    """A gradient of earlier steps, which has no value in this process; it can only be cleared."""

    is_cleared = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _T.zero_:
            args[0].is_cleared = True
            return args[0]
        if func in _OF_ZERO_GRAD:
            return None
        raise ApplianceCompilationError(
            "a gradient of an earlier step is read",
            code="gradient-of-earlier-step",
            where=getattr(func, "__name__", None),
            rule="MemoryX keeps no gradients between steps",
            remedy="read p.grad in the traced step, after loss.backward()",
        )


def pending_gradient(weight: torch.Tensor) -> PendingGradient:
    """Return the placeholder of the gradient that earlier steps have left to a weight."""
    with _disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
        value = torch.zeros((), dtype=weight.dtype).expand(weight.shape)
        return torch.Tensor._make_subclass(PendingGradient, value)


def is_pending(gradient: torch.Tensor | None) -> bool:
    """Return whether a gradient is one of earlier steps that was not cleared."""
    return isinstance(gradient, PendingGradient) and not gradient.is_cleared


class EarlierGradients:
    """What one trace does with the gradients that earlier steps have left.

    ``carried`` are the weights whose first backward pass adds to an earlier gradient, ``left``
    those whose gradient is not cleared when the step ends.
    """

    def __init__(self) -> None:
        self.carried: frozenset[str] = frozenset()
        self.left: frozenset[str] = frozenset()
        self._weights: Mapping[str, torch.Tensor] = {}

    def begin(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Give all weights a gradient of earlier steps."""
        self._weights = weights
        for weight in weights.values():
            if weight.requires_grad:
                weight.grad = pending_gradient(weight)

    def before_backward(self) -> None:
        """Note the gradients that a backward pass would add to, and take them away."""
        self.carried |= {name for name, w in self._weights.items() if is_pending(w.grad)}
        self._take_away()

    def end(self) -> None:
        """Note the gradients that the step leaves, before they are asked for."""
        self._take_away()
        found = ((name, weight.grad) for name, weight in self._weights.items())
        self.left = frozenset(n for n, grad in found if grad is not None and not _is_zero(grad))

    def _take_away(self) -> None:
        for weight in self._weights.values():
            if isinstance(weight.grad, PendingGradient):
                weight.grad = None


def _is_zero(gradient: torch.Tensor) -> bool:
    """Return whether the last op on a gradient has set it to zero."""
    return running_graph() is not None and op_name(node_of(gradient)) == "zero_"
