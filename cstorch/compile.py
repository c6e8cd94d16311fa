"""Register the model of a program."""

from __future__ import annotations

import logging
import sys

import torch
from torch import nn

from cstorch.backend import Backend
from cstorch.current import backend_of, current_backend
from waferstream.core.errors import ConfigError

log = logging.getLogger("waferstream")


def compile(model: nn.Module, backend: Backend | str | None = None) -> nn.Module:
    """Register the model with the backend; return the module that a traced step calls.

    The kind of a backend stands for that of this process, or for a new one.

    Of a module that ``torch.compile`` has wrapped, this is the module itself.
    """
    backend = backend_of(backend) if isinstance(backend, str) else backend or current_backend()
    model = unwrapped(model)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            "cstorch.compile must get a torch.nn.Module",
            code="not-a-module",
            where="cstorch.compile",
            value=type(model).__name__,
            remedy="compile the module, and call other functions in the traced step",
        )
    _note_types(model)
    backend.session.register(model)
    if not hasattr(model, "device"):
        # Programs for the real machine ask the model where to make tensors for a step.
        model.device = backend.torch_device  # type: ignore[assignment]
    return model


def _note_types(model: nn.Module) -> None:
    """Say that masters are fp32, where a model has parameters of other types."""
    types = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if types:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types))
        log.warning(
            "Parameters are %s: MemoryX keeps and updates them in float32, and rounds them where"
            " they are read; cstorch.save keeps all bits",
            names,
        )


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside of what ``torch.compile`` has made of it."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # slow to import, and then not needed
    if compiler is None or not isinstance(model, compiler.OptimizedModule):
        return model
    log.info("torch.compile has no effect: the step is compiled for the wafer")
    inner: nn.Module = model._orig_mod
    return inner
