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
from waferstream.version import VERSION

_WITHOUT_EFFECT: Any = {"debug": {"ini", "debug_args"}, "storage": True}
"""Flags of any type that no compile reads."""

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


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
        (flags.csx.performance.policy.systems_key(batch_size, config.num_csx), system),
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
