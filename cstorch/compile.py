"""``cstorch.compile``: hand the model to the backend."""

from __future__ import annotations

from torch import nn

from cstorch.backend import Backend, current_backend


def compile(model: nn.Module, backend: Backend | None = None) -> nn.Module:
    """Register the model with the backend; returns what a traced step calls."""
    (backend or current_backend()).register(model)
    return model
