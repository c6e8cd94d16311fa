"""The ops that a piece of a program runs, with the user's lines and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from waferstream.compiler.capture.capture_errors import calling_line

_PASSIVE = (
    *("_to_copy", "alias", "detach", "empty", "empty_like", "full_like", "ones_like"),
    *("lift_fresh", "lift_fresh_copy", "split_with_sizes"),
)
"""Ops that a recording has for its own reasons, or that have no values of their own."""

_DIFFERENT = 1e-4
"""A difference between equal kernels, relative to a value, that is no rounding of fp32."""

_ENOUGH = 1024
"""Elements of a result that are compared, of those that it has."""


@dataclass(frozen=True)
class LoggedOp:
    """An op that has run: its name, line and first floats."""

    name: str
    line: str | None
    floats: tuple[torch.Tensor, ...]

    def is_like(self, other: LoggedOp) -> bool:
        """Return whether another op has given the same values."""
        if len(self.floats) != len(other.floats):
            return False
        pairs = zip(self.floats, other.floats, strict=True)
        return all(
            a.shape == b.shape and torch.allclose(a, b, rtol=_DIFFERENT, atol=0, equal_nan=True)
            for a, b in pairs
        )


@dataclass(frozen=True)
class RanStep:
    """The forward and backward pass of a step on a micro-batch."""

    ops: Sequence[LoggedOp]
    gradients: Mapping[str, torch.Tensor]

    def has_gradients_of(self, other: RanStep) -> bool:
        """Return whether another pass has given the same gradients."""
        if self.gradients.keys() != other.gradients.keys():
            return False
        pairs = ((each, other.gradients[name]) for name, each in self.gradients.items())
        return all(float((a - b).norm()) <= _DIFFERENT * float(a.norm()) for a, b in pairs)


class OpLog(TorchDispatchMode):
    """Keeps the ops that run, in order."""

    def __init__(self, line_of: Callable[[], str | None] = calling_line) -> None:
        TorchDispatchMode.__init__(self)
        self._line_of = line_of
        self.ops: list[LoggedOp] = []

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        results = op(*args, **(kwargs or {}))
        name = op.overloadpacket.__name__
        if name not in _PASSIVE:
            leaves = [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]
            floats = tuple(_first(x) for x in leaves if x.is_floating_point())
            self.ops.append(LoggedOp(name, self._line_of(), floats))
        return results


def _first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1)[:_ENOUGH].double()
