"""Levels of sparsity: a fraction as a function of the update.

Words, defaults and formulas are the vendor's (cerebras_pytorch 2.10, ``sparse``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag

from waferstream.core.config import Config

Fraction = Annotated[float, Field(ge=0, le=1)]


class Level(Config):
    """A fraction as a function of the update."""

    @property
    def is_constant(self) -> bool:
        """Whether the value never changes."""
        return False

    @abstractmethod
    def unclamped(self, update: int, num_changes: int) -> float:
        """Return the value at an update, before which the mask was changed ``num_changes`` times.

        It may be outside of 0 to 1.
        """

    def at(self, update: int, num_changes: int = 0) -> float:
        """Return the value at an update, within 0 to 1."""
        return _clamped(self.unclamped(update, num_changes))

    @property
    def lowest(self) -> float:
        """The largest number that no value is below, within 0 to 1."""
        return _clamped(self._lowest)

    @property
    @abstractmethod
    def _lowest(self) -> float:
        """The infimum of ``unclamped`` over all updates from 0 on."""


class Constant(Level):
    """The same value always."""

    type: Literal["constant"] = "constant"
    value: Fraction

    @property
    def is_constant(self) -> bool:
        return True

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.value

    @property
    def _lowest(self) -> float:
        return self.value


class Linear(Level):
    """``init + slope t``."""

    type: Literal["linear"] = "linear"
    init: Fraction
    slope: float

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.init + self.slope * update

    @property
    def _lowest(self) -> float:
        return self.init if self.slope >= 0 else 0.0


class Exp(Level):
    """``final + (init - final) exp(gamma t)``."""

    type: Literal["exp"] = "exp"
    init: Fraction
    gamma: float
    final: Fraction = 1.0

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        exponent = min(self.gamma * update, 700.0)  # larger ones overflow, and are clamped anyway
        return self.final + (self.init - self.final) * math.exp(exponent)

    @property
    def _lowest(self) -> float:
        if self.gamma <= 0:  # it goes from one to the other
            return min(self.init, self.final)
        return self.init if self.init >= self.final else 0.0


class Power(Level):
    """``init beta^t``."""

    type: Literal["power"] = "power"
    init: Fraction
    beta: Annotated[float, Field(ge=0)]

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return float(self.init * np.float64(self.beta) ** update)

    @property
    def _lowest(self) -> float:
        return self.init if self.beta >= 1 else 0.0


class Cosine(Level):
    """From ``init`` to ``minimum`` and back: ``o + (init - o) cos(pi t / half_period)``.

    ``o`` is the mean of both.
    """

    type: Literal["cosine"] = "cosine"
    init: Fraction
    half_period: Annotated[float, Field(gt=0)]
    minimum: Fraction = 0.0

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        offset = (self.init + self.minimum) / 2
        return offset + (self.init - offset) * math.cos(math.pi * update / self.half_period)

    @property
    def _lowest(self) -> float:
        return min(self.init, self.minimum)


class Cycling(Level):
    """One value after the other: the next one whenever the mask has changed."""

    type: Literal["cycling"] = "cycling"
    values: Annotated[tuple[Fraction, ...], Field(min_length=1)]

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.values[num_changes % len(self.values)]

    @property
    def _lowest(self) -> float:
        return min(self.values)


class Table(Level):
    """A value for every update; what a function of the user's gives."""

    type: Literal["table"] = "table"
    values: Annotated[tuple[float, ...], Field(min_length=1)]

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.values[min(update, len(self.values) - 1)]

    @property
    def _lowest(self) -> float:
        return min(self.values)


def _type_of(value: object) -> str | None:
    """Return the type of a schedule; None for what is none."""
    if isinstance(value, Mapping):
        return value.get("type")
    return getattr(value, "type", None)


AnyLevel = Annotated[
    Annotated[Constant, Tag("constant")]
    | Annotated[Linear, Tag("linear")]
    | Annotated[Exp, Tag("exp")]
    | Annotated[Power, Tag("power")]
    | Annotated[Cosine, Tag("cosine")]
    | Annotated[Cycling, Tag("cycling")]
    | Annotated[Table, Tag("table")],
    Discriminator(_type_of),
]


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 1.0)
