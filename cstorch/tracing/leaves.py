"""The weights that stand for the parameters of a model while its step runs, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from wsc.compiler.capture.node_marks import mark_update


class Leaves:
    """The leaves of autograd in a step of a model.

    ``taken`` are the gradients with which optimizers were stepped, by parameter.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters()}
        self.taken: dict[str, torch.Tensor | None] = {}

    def take(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note the gradients of parameters, which are updated now."""
        names = [self._names[each] for each in parameters if each in self._names]
        self.taken |= {name: self._model.get_parameter(name).grad for name in names}
        mark_update(names)

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

    def _leaf(self, parameter: torch.Tensor) -> torch.Tensor:
        name = self._names.get(parameter)
        return parameter if name is None else self._model.get_parameter(name)
