"""The base of all metrics: state in buffers, which a traced step updates like any others.

Sums over micro-batches are kept in fp64 or int64, so that counts are exact and a metric over an
evaluation does not depend on the number of systems.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

_existing: WeakSet[Metric] = WeakSet()
_serials = itertools.count()


class Metric(nn.Module):
    """A metric over the samples since the last ``reset``.

    A subclass registers its state in ``__init__``, adds to it in ``update`` and reads it in
    ``compute``. Calling the metric updates it and returns its value; ``float(metric)`` is its value
    in the loop. It may be part of a model, whose checkpoints leave it out, or stand alone.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name or type(self).__name__
        self._initial: dict[str, torch.Tensor] = {}
        self._serial = next(_serials)
        self._updates: torch.Tensor
        self.register_state("_updates", torch.zeros((), dtype=torch.int64))
        _existing.add(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "update" in vars(cls):
            cls.update = _counted(cls.update)  # type: ignore[method-assign]

    @property
    def num_updates(self) -> int:
        """Updates since the last reset: one for each micro-batch."""
        return int(self._updates)

    def register_state(self, name: str, tensor: torch.Tensor, persistent: bool = False) -> None:
        """Add a state tensor with its initial value, to which ``reset`` returns."""
        self._initial[name] = tensor.clone()
        self.register_buffer(name, tensor, persistent=persistent)

    def reset(self) -> None:
        """Return to the initial state."""
        with torch.no_grad():
            for name, initial in self._initial.items():
                getattr(self, name).copy_(initial)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add samples to the state."""
        raise NotImplementedError

    def compute(self) -> torch.Tensor:
        """Return the value of the metric, a scalar."""
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Add samples, and return the value of the metric with them."""
        self.update(*args, **kwargs)
        return self.compute()

    def __float__(self) -> float:
        return float(self.compute())


def _counted(update: Any) -> Any:
    """Return an update that counts its calls and records nothing for autograd."""

    @functools.wraps(update)
    def counted(self: Metric, *args: Any, **kwargs: Any) -> None:
        with torch.no_grad():
            self._updates += 1
            update(self, *args, **kwargs)

    return counted


def standing_alone(model: nn.Module) -> dict[str, nn.Module]:
    """Return the metrics that are not part of a model, by a name of each."""
    inside = set(model.modules())
    outside = sorted((m for m in _existing if m not in inside), key=lambda metric: metric._serial)
    return {f"metrics.{metric._serial}": metric for metric in outside}


def weighted(values: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Return values in fp32 times their weights, if any."""
    return values.float() if weights is None else values.float() * weights.float()


def ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """Return the quotient, 0 where nothing was counted."""
    counted = denominator != 0
    return torch.where(counted, numerator / torch.where(counted, denominator, 1.0), 0.0)


def zeros(*shape: int) -> torch.Tensor:
    """Return an empty sum over micro-batches."""
    return torch.zeros(shape, dtype=torch.float64)
