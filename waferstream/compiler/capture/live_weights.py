"""Streamed weights in the place of a model's parameters while a step runs.

Gradients that earlier steps have left are refused: a step that does not clear them would add to
them. While a step is traced, every weight begins with a ``PendingGradient``, as a parameter does
after a step of a plain loop. Whatever clears it (``zero_grad`` of an optimizer or a module,
``p.grad = None``) so is seen; one that a backward pass still finds is carried over from the step
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._python_dispatch import _disable_current_modes

from waferstream.compiler.capture.autocast import autocast
from waferstream.compiler.capture.capture_errors import calling_line, line_of_node
from waferstream.compiler.capture.node_marks import node_of, running_graph
from waferstream.compiler.capture.parameter_hooks import hook_like, hooks_of, refuse_new_hooks
from waferstream.compiler.ops import op_name
from waferstream.compiler.storages import have_common_elements, in_memory
from waferstream.core.errors import ApplianceCompilationError
from waferstream.numerics.precision import StreamPrecision

_T: Any = torch.Tensor
_OF_ZERO_GRAD = (_T.detach_, _T.requires_grad_, _T.grad_fn.__get__)


@contextmanager
def live_weights(
    model: nn.Module, streamed: Mapping[str, torch.Tensor], precision: StreamPrecision
) -> Iterator[dict[str, torch.Tensor]]:
    """Let a model compute with streamed weights, under the rules of autocast.

    Yields the weights in the compute dtype by name: the leaves to which autograd gives gradients.
    """
    live = {}
    for name, master in model.named_parameters():
        # Detached, so that the cast weight is the leaf.
        tensor = streamed[name].to(precision.compute_dtype).detach()
        live[name] = tensor.requires_grad_(master.requires_grad)
        if master.requires_grad:
            hook_like(tensor, name, master)
        # A parameter for isinstance, which Module.get_parameter asks.
        tensor._is_param = True
    everywhere = {place: live[name] for place, name in parameter_places(model).items()}
    # torch.func.functional_call can only call the model itself, not a step around it.
    with _reparametrize_module(model, everywhere), autocast(precision):
        before = {name: hooks_of(weight) for name, weight in live.items()}
        yield live
        refuse_new_hooks(live, before)


def parameter_places(model: nn.Module) -> dict[str, str]:
    """Return the name in ``named_parameters`` for each attribute that holds a parameter.

    A tied head is another attribute with the parameter of the embedding; a module with two paths
    has its attributes once.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{path}.{attribute}" if path else attribute: names[parameter]
        for path, module in model.named_modules()
        for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
    }


def refuse_views_of_weights(module: fx.GraphModule, model: nn.Module) -> None:
    """Refuse a constant of a captured step that has memory in common with a parameter.

    Raises:
        ApplianceCompilationError: There is one: it would keep the values of the first step.
    """
    weights: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, parameter in model.named_parameters():
        if (plain := in_memory(parameter)) is not None:
            weights.setdefault(plain.untyped_storage().data_ptr(), []).append((name, plain))
    for node in module.graph.find_nodes(op="get_attr"):
        held = getattr(module, str(node.target))  # a generator of random numbers, too
        constant = in_memory(held) if isinstance(held, torch.Tensor) else None
        if constant is None:
            continue
        for name, weight in weights.get(constant.untyped_storage().data_ptr(), ()):
            if have_common_elements(constant, weight):
                raise ApplianceCompilationError(
                    "a tensor of the step shares memory with a parameter",
                    code="constant-shares-weight",
                    where=next((line for u in node.users if (line := _line_of(u))), None),
                    value=name,
                    rule="MemoryX updates the parameter; the tensor would keep its first values",
                    remedy="use the parameter itself, or clone() what is to stay as it is",
                )


def _line_of(node: fx.Node) -> str | None:
    return line_of_node(node.meta.get("stack_trace"))


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
            "a gradient is read or changed outside of the step that computes it",
            code="gradient-of-earlier-step",
            where=calling_line(),
            value=getattr(func, "__name__", None),
            rule="MemoryX has the gradients, and keeps none between steps",
            remedy="change a gradient in a function that parameter.register_hook(...) calls, or "
            "in a step of cstorch.trace, after loss.backward(); let one optimizer have all "
            "parameters",
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
