"""Streamed weights in the place of a model's parameters while a step runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import fx, nn
from torch.nn.utils.stateless import _reparametrize_module

from waferstream.compiler.capture.autocast import autocast
from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.parameter_hooks import hook_like, hooks_of, refuse_new_hooks
from waferstream.compiler.storages import have_common_elements, in_memory
from waferstream.core.errors import ApplianceCompilationError
from waferstream.numerics.precision import StreamPrecision


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
