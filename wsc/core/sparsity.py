"""Sparsity of weights as data for MemoryX: algorithm, level, schedules.

The masks themselves, and the rules that change them, are in ``memoryx.sparsity``; the classes of
``cstorch.sparse``, which users construct, produce this data. Words, defaults and formulas are the
vendor's (cluster_interface.md, section 3.6). An *update* is counted from 1, this one included;
update 0 is the state before the first step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from wsc.core.config import Config

Algorithm = Literal["static", "gmp", "set", "rigl"]
InitMethod = Literal["random", "topk", "from_zeros", "checkerboard", "given"]
"""How a first mask is made; ``given`` ones come from the user's program."""

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
        return min(max(self.unclamped(update, num_changes), 0.0), 1.0)


class Constant(Level):
    """The same value always."""

    type: Literal["constant"] = "constant"
    value: Fraction

    @property
    def is_constant(self) -> bool:
        return True

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.value


class Linear(Level):
    """``init + slope t``."""

    type: Literal["linear"] = "linear"
    init: Fraction
    slope: float

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.init + self.slope * update


class Exp(Level):
    """``final + (init - final) exp(gamma t)``."""

    type: Literal["exp"] = "exp"
    init: Fraction
    gamma: float
    final: Fraction = 1.0

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        exponent = min(self.gamma * update, 700.0)  # larger ones overflow, and are clamped anyway
        return self.final + (self.init - self.final) * math.exp(exponent)


class Power(Level):
    """``init beta^t``."""

    type: Literal["power"] = "power"
    init: Fraction
    beta: Annotated[float, Field(ge=0)]

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return float(self.init * np.float64(self.beta) ** update)


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


class Cycling(Level):
    """One value after the other: the next one whenever the mask has changed."""

    type: Literal["cycling"] = "cycling"
    values: Annotated[tuple[Fraction, ...], Field(min_length=1)]

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.values[num_changes % len(self.values)]


class Table(Level):
    """A value for every update; what a function of the user's gives."""

    type: Literal["table"] = "table"
    values: Annotated[tuple[float, ...], Field(min_length=1)]

    def unclamped(self, update: int, num_changes: int) -> float:  # noqa: ARG002
        return self.values[min(update, len(self.values) - 1)]


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


class UpdateSteps(Config):
    """The updates at which a mask changes: every ``freq`` from ``start`` to before ``stop``.

    Or the listed ``steps``.
    """

    freq: PositiveInt | None = None
    start: NonNegativeInt = 0
    stop: NonNegativeInt | None = None
    steps: tuple[NonNegativeInt, ...] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.steps is not None and (self.freq, self.start, self.stop) != (None, 0, None):
            raise ValueError("steps excludes freq, start and stop")
        if self.steps is None and self.freq is None and (self.start or self.stop is not None):
            raise ValueError("start and stop need freq")
        if self.steps is not None and not self.steps:
            raise ValueError("steps must name at least one step")
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop must be above start; got {self.stop}, {self.start}")
        return self

    def includes(self, update: int) -> bool:
        """Return whether the mask changes at an update."""
        if self.steps is not None:
            return update in self.steps
        is_within = update >= self.start and (self.stop is None or update < self.stop)
        return is_within and (update - self.start) % (self.freq or 1) == 0

    @property
    def first(self) -> int:
        """The first update, from 1, at which the mask changes."""
        if self.steps is not None:
            return min((step for step in self.steps if step), default=0)
        return self.start or (self.freq or 1)

    @property
    def last(self) -> int | None:
        """The last listed update; None where there is no list."""
        return None if self.steps is None else max(self.steps)

    def latest(self, update: int) -> int | None:
        """Return the last update, from 1 to ``update``, at which the mask changes."""
        if self.steps is not None:
            return max((step for step in self.steps if 0 < step <= update), default=None)
        end = update if self.stop is None else min(update, self.stop - 1)
        found = end - (end - self.start) % (self.freq or 1)
        return found if end >= self.start and found > 0 else None

    def count_before(self, update: int) -> int:
        """Return how many updates before ``update``, update 0 included, change the mask."""
        if self.steps is not None:
            return len({step for step in self.steps if step < update})
        stop = update if self.stop is None else min(update, self.stop)
        return max(0, -((self.start - stop) // (self.freq or 1)))


@dataclass(frozen=True)
class WeightSparsity:
    """The sparsity of one weight.

    Args:
        name: The weight.
        algorithm: What changes its mask.
        level: The share of zeros; None where the first mask decides.
        init: How the first mask is made.
        update: When the mask changes; None for never (``static``).
        drop_fraction: The share of the remaining weights that an update replaces (``set``,
            ``rigl``).
        in_groups: Groups of inputs (columns) of equal density; 1 for none.
        out_groups: Groups of outputs (rows) of equal density; 1 for none.
        seed: Seed of random masks.
    """

    name: str
    algorithm: Algorithm
    level: AnyLevel | None
    init: InitMethod = "random"
    update: UpdateSteps | None = None
    drop_fraction: AnyLevel | None = None
    in_groups: int = 1
    out_groups: int = 1
    seed: int = 0

    @property
    def starts_sparse(self) -> bool:
        """Whether there is a mask before the first step; else the weight starts dense."""
        return self.update is None or self.update.includes(0)

    def changes_at(self, update: int) -> bool:
        """Return whether the mask changes at an update, counted from 1."""
        return update > 0 and self.update is not None and self.update.includes(update)

    def needs_dense_gradient(self, update: int) -> bool:
        """Return whether an update reads the gradient of weights that are zero."""
        return self.algorithm == "rigl" and self.changes_at(update)

    def num_changes(self, update: int) -> int:
        """Return how often the mask was changed or made before an update."""
        return 0 if self.update is None else self.update.count_before(update)

    def target(self, update: int) -> float | None:
        """Return the share of zeros after an update that changes the mask; None for any."""
        return None if self.level is None else self.level.at(update, self.num_changes(update))

    def num_kept(self, shape: Sequence[int], update: int) -> int | None:
        """Return how many weights are not zero after an update that changes the mask."""
        share = self.target(update)
        if share is None:
            return None
        return self.groups * kept_of(prod(shape) // self.groups, share)

    def density(self, shape: Sequence[int], update: int) -> float:
        """Return the share of weights that are not zero after an update, 1 where masks decide.

        It is that of the last update, this one included, that changed or made the mask.
        """
        last = None if self.update is None else self.update.latest(update)
        if last is None and self.starts_sparse:
            last = 0
        kept = None if last is None else self.num_kept(shape, last)
        return 1.0 if kept is None or not prod(shape) else kept / prod(shape)

    @property
    def groups(self) -> int:
        """Groups of weights with equal density."""
        return self.in_groups * self.out_groups

    def dropped(self, update: int) -> float:
        """Return the share of the remaining weights that an update replaces."""
        level, made = self.drop_fraction, int(self.starts_sparse)
        return 0.0 if level is None else level.at(update, self.num_changes(update) - made)


def kept_of(count: int, share: float) -> int:
    """Return how many of ``count`` weights remain where a share is zero: fp32, rounded down.

    The vendor's arithmetic, so that both keep the same number.
    """
    return int((np.float32(1) - np.float32(share)) * np.float32(count))
