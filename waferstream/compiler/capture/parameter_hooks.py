"""Hooks that a user has registered on parameters, on the weights that stand for them in a step.

The hooks run once, while autograd computes the gradient of a micro-batch. What they make of it is
part of the graph, from which ``waferstream.compiler.results.gradient_ops`` cuts it: MemoryX does
that to the gradient of the batch. Under autocast a gradient has the half type, and hooks get it in
fp32, the type of the parameter that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import unwrap
from itertools import islice
from typing import Any

import torch
from torch import fx

from waferstream.compiler.capture.node_marks import node_of, running_graph
from waferstream.compiler.storages import overwritten
from waferstream.core.errors import ApplianceCompilationError

Hook = Callable[[torch.Tensor], Any]

_UNHOOKED = "waferstream_unhooked"
"""Key of a node's ``meta`` with the parameters whose gradient it is before their hooks."""


def hooks_of(parameter: torch.Tensor) -> tuple[tuple[Hook, ...], tuple[Hook, ...]]:
    """Return the hooks on a parameter's gradient, and those after its accumulation."""
    with torch._C.DisableTorchFunctionSubclass():
        before, after = parameter._backward_hooks, parameter._post_accumulate_grad_hooks
    return tuple((before or {}).values()), tuple((after or {}).values())


def hook_like(weight: torch.Tensor, name: str, parameter: torch.Tensor) -> None:
    """Let a weight of a step call the hooks of the parameter ``name`` that it stands for."""
    before, after = hooks_of(parameter)
    if before or after:
        weight.register_hook(partial(_mark, name))
    for hook in before:
        weight.register_hook(partial(_call, hook, name))
    for hook in after:
        weight.register_post_accumulate_grad_hook(partial(_call_after, hook, name))


def refuse_new_hooks(
    weights: Mapping[str, torch.Tensor], before: Mapping[str, tuple[tuple[Hook, ...], ...]]
) -> None:
    """Refuse hooks that a step has registered itself, where weights had those ``before``.

    Raises:
        ApplianceCompilationError: There is one.
    """
    for name, weight in weights.items():
        hooks = [hook for some in hooks_of(weight) for hook in some]
        known = [hook for some in before[name] for hook in some]
        if new := [hook for hook in hooks if hook not in known]:
            raise ApplianceCompilationError(
                "a step registers a hook of a parameter",
                code="hook-registered-in-step",
                where=_line_of(new[0]),
                value=name,
                rule="a plain loop would call it once more in every step",
                remedy="register it once, before the first step",
            )


def unhooked(node: fx.Node) -> frozenset[str]:
    """Return the parameters whose gradient a node is before their hooks have run."""
    return frozenset(node.meta.get(_UNHOOKED, ()))


def _mark(name: str, gradient: torch.Tensor) -> None:
    """Note the node of a gradient, if a graph is recorded."""
    if running_graph() is not None:
        meta = node_of(gradient).meta
        meta[_UNHOOKED] = (*meta.get(_UNHOOKED, ()), name)


def _call(hook: Hook, name: str, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient as a hook changes it."""
    given, before = gradient.float(), _num_ops()
    made = hook(given)
    if made is None and not _has_written(before):
        raise _observing(hook, name)
    changed: torch.Tensor = given if made is None else made
    return changed.to(gradient.dtype)


def _call_after(hook: Hook, name: str, weight: torch.Tensor) -> None:
    """Let a hook change the gradient of a weight."""
    gradient, before = weight.grad, _num_ops()
    hook(weight)
    if weight.grad is gradient and not _has_written(before):
        raise _observing(hook, name)


def _num_ops() -> int:
    """Return how many ops the running trace has recorded."""
    graph = running_graph()
    return 0 if graph is None else len(graph.nodes)


def _has_written(before: int) -> bool:
    """Return whether an op after the first ones writes to a tensor; true without a trace."""
    graph = running_graph()
    if graph is None:
        return True
    new = islice(reversed(graph.nodes), len(graph.nodes) - before)
    return any(overwritten(node) is not None for node in new)


def _observing(hook: Hook, name: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a hook of a parameter must change its gradient",
        code="gradient-hook-changes-nothing",
        where=_line_of(hook),
        value=name,
        rule="the hook runs once, without values; MemoryX repeats the tensor operations by which "
        "it changes the gradient, and nothing else",
        remedy="remove the hook, and return p.grad.norm() from a traced step",
    )


def _line_of(hook: Hook) -> str | None:
    """Return ``file:line`` of a function, if it is one of Python."""
    code = getattr(unwrap(hook), "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
