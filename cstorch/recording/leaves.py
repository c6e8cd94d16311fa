"""The weights that stand for the parameters of a model while its step runs, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cstorch.recording.recorded import RecordedOptimizer
from waferstream.compiler.capture.live_weights import PendingGradient
from waferstream.compiler.capture.node_marks import mark_update
from waferstream.compiler.capture.parameter_hooks import hooks_of


def traits_of(model: nn.Module, optimizer: RecordedOptimizer | None) -> list[object]:
    """Return the flags and hooks of parameters and optimizer that a trace depends on."""
    parameters = list(model.parameters())
    with torch._C.DisableTorchFunctionSubclass():
        flags = [parameter.requires_grad for parameter in parameters]
    return [flags, list(map(hooks_of, parameters)), optimizer and optimizer.hooks()]


class Leaves:
    """The leaves of autograd in a step of a model.

    ``taken`` are the gradients with which optimizers were stepped, by parameter.
    """

    def __init__(self, model: nn.Module, *, is_whole: bool = True) -> None:
        self._model = model
        self._is_whole = is_whole  # otherwise nodes are copied for layers that were left out
        self._names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters()}
        self.taken: dict[str, torch.Tensor | None] = {}

    def take(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note the gradients of parameters, which are updated now."""
        names = [self._names[each] for each in parameters if each in self._names]
        found = {name: self._model.get_parameter(name).grad for name in names}
        self.taken |= {
            name: None if isinstance(gradient, PendingGradient) else gradient
            for name, gradient in found.items()
        }
        if self._is_whole:
            mark_update({name: value for name in names if (value := self.taken[name]) is not None})

    @contextmanager
    def in_place(self, groups: Sequence[dict[str, Any]]) -> Iterator[None]:
        """Put the leaves in the places of parameters in the groups of an optimizer."""
        before = [group["params"] for group in groups]
        for group in groups:
            group["params"] = [self._leaf(parameter) for parameter in group["params"]]
        try:
            yield
        finally:
            for group, parameters in zip(groups, before, strict=True):
                group["params"] = parameters

    def clear(self, parameters: Iterable[torch.Tensor]) -> None:
        """Clear the gradients of parameters."""
        for parameter in parameters:
            self._leaf(parameter).grad = None

    def _leaf(self, parameter: torch.Tensor) -> torch.Tensor:
        name = self._names.get(parameter)
        return parameter if name is None else self._model.get_parameter(name)
