"""A key of everything that decides the program of a step, for a start without recording the step.

The name of a compile artifact is a digest of the recorded graph, so it is known only after the
step's Python has run on every layer. Where the forward pass has an identity (``Forward``), a key
follows from that identity and from what it reads: model, buffers, flags, batch and system. Programs
that differ in nothing but the cluster that they are for share a key.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module

from cstorch import flags
from cstorch.amp import stream_precision
from cstorch.listeners.hooks import while_traced
from cstorch.metrics import Metric
from cstorch.session.session import Session
from cstorch.tracing.call import Call, is_constant, outline
from cstorch.tracing.forward import Forward
from waferstream.compiler.capture.parameter_hooks import hooks_of
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, MIDDLE, Stack
from waferstream.version import VERSION

_WITHOUT_EFFECT: Any = {"debug": {"ini", "debug_args"}, "storage": True}
"""Flags of any type that no compile reads."""

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

_RECORDED = CAPTURED_LAYERS, CAPTURED_LAYERS + 1
"""Layers of the two recordings that take the place of one with all layers."""


def start_key(session: Session, model: nn.Module, call: Call, forward: Forward) -> str | None:
    """Return the key of a step; None if something takes part whose effect cannot be known.

    Args:
        backend: The backend of the program.
        model: The registered model.
        call: The first call of the step.
        forward: The forward pass of the step's function.
    """
    leaves = [leaf for leaf in call.leaves if not isinstance(leaf, torch.Tensor)]
    is_explored = flags.csx.performance.policy.range is not None
    must_run = is_explored or flags.csx.debug.retrace_every_iteration
    if forward.identity is None or must_run or not all(map(is_constant, leaves)):
        return None
    if not while_traced.read_outlines_only or has_hooks(model):
        return None
    values = _values_of(model)
    if values is None:
        return None
    config, batch_size = session.settings.cluster_config, call.tensors[0].shape[0]
    system = config.cluster.machine.system.model_dump_json()
    parts = (
        (VERSION, torch.__version__, sys.version),
        (forward.identity, call.function.__qualname__, bool(while_traced)),
        (stream_precision(model), flags.amp, flags.csx.model_dump(exclude=_WITHOUT_EFFECT)),
        (flags.csx.performance.policy.systems_key(batch_size, config.cut_csx), system),
        (call.structure, [outline(leaf) for leaf in call.leaves]),
        (list(outlines(model)), values),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def has_hooks(model: nn.Module) -> bool:
    """Return whether code outside of the modules runs when they run."""
    return (
        any(getattr(nn_module, f"_global{name}", None) for name in _HOOKS)
        or any(getattr(part, name) for part in model.modules() for name in _HOOKS)
        or any("forward" in vars(part) for part in model.modules())
        or any(any(hooks_of(parameter)) for parameter in model.parameters())
    )


def outlines(model: nn.Module) -> Iterator[object]:
    """Yield the state of modules and parameters that a forward pass may read, besides values."""
    for path, part in model.named_modules(remove_duplicate=False):
        kind = type(part)
        constants = {name: value for name, value in vars(part).items() if is_constant(value)}
        if isinstance(part, Metric):
            del constants["_serial"]  # the order of creation
        yield path, kind.__module__, kind.__qualname__, constants
    first: dict[torch.Tensor, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        shared = first.setdefault(parameter, name)
        yield name, shared, tuple(parameter.shape), parameter.dtype, parameter.requires_grad


def _values_of(model: nn.Module) -> list[tuple[object, ...]] | None:
    """Return digests of all constant buffers; None if one has no value here."""
    values: list[tuple[object, ...]] = []
    state = {b for m in model.modules() if isinstance(m, Metric) for b in m.buffers()}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if buffer in state:  # a program that reads it writes it
            values.append((name, tuple(buffer.shape), buffer.dtype))
            continue
        if type(buffer) is not torch.Tensor or buffer.device.type != "cpu":
            return None
        flat = buffer.detach().contiguous().view(-1).view(torch.uint8)
        digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
        values.append((name, tuple(buffer.shape), buffer.stride(), buffer.dtype, digest))
    return values


@dataclass(frozen=True)
class RepeatedLayers:
    """Equal layers of a model, which its forward pass runs one after the other in the same way."""

    stack: Stack
    layers: nn.ModuleList

    @classmethod
    def of(cls, model: nn.Module, forward: Forward | None) -> RepeatedLayers | None:
        """Return the layers; None if there are few, or if they may differ.

        The model names them (``repeated_layers``). Only a forward pass with an identity may run
        twice, and hooks may only read names and shapes of what the layers return.
        """
        layers: nn.ModuleList | None = getattr(model, "repeated_layers", None)
        if forward is None or forward.identity is None or layers is None:
            return None
        if len(layers) <= sum(_RECORDED) or has_hooks(model):
            return None
        if not while_traced.read_outlines_only:
            return None
        first, *others = (list(outlines(layer)) for layer in layers)
        if any(other != first for other in others) or any(True for _ in layers.buffers()):
            return None
        (path,) = (path for path, module in model.named_modules() if module is layers)
        names = dict(model.named_parameters(remove_duplicate=False))
        owned = {name: p for name, p in names.items() if name.startswith(f"{path}.")}
        elsewhere = {p for name, p in names.items() if name not in owned}
        is_shared = len({*owned.values()}) < len(owned) or not elsewhere.isdisjoint(owned.values())
        return None if is_shared else cls(Stack(path, len(layers)), layers)

    def names(self, name: str) -> Iterator[str]:
        """Yield the names of a tensor of the first layers, and of those that are left out."""
        yield name
        if self.stack.number(name) == MIDDLE:
            left_out = range(CAPTURED_LAYERS, self.stack.num_layers)
            yield from (self.stack.renumbered(name, number) for number in left_out)

    @contextmanager
    def first(self, count: int) -> Iterator[None]:
        """Leave only the first ``count`` layers in the model."""
        every = self.layers._modules
        self.layers._modules = dict(list(every.items())[:count])
        try:
            yield
        finally:
            self.layers._modules = every
