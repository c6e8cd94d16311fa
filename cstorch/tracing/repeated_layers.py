"""Layers of a model that are equal, so that a step need not be recorded with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from cstorch.listeners.hooks import while_traced
from cstorch.tracing.forward import Forward
from cstorch.tracing.start_key import has_hooks, outlines
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, MIDDLE, Stack, with_number

_RECORDED = CAPTURED_LAYERS, CAPTURED_LAYERS + 1
"""Layers of the two recordings that take the place of one with all layers."""


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
            yield from (with_number(name, number) for number in left_out)

    @contextmanager
    def first(self, count: int) -> Iterator[None]:
        """Leave only the first ``count`` layers in the model."""
        every = self.layers._modules
        self.layers._modules = dict(list(every.items())[:count])
        try:
            yield
        finally:
            self.layers._modules = every
