"""Sparsity of weights as data for MemoryX: algorithm, level, when masks change.

The masks themselves, and the rules that change them, are in ``memoryx.sparsity``; the classes of
``cstorch.sparse``, which users construct, produce this data. Words, defaults and formulas are the
vendor's (cerebras_pytorch 2.10, ``sparse``). An *update* is counted from 1, this one included;
update 0 is the state before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, Self

import numpy as np
from pydantic import NonNegativeInt, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.sparsity.levels import AnyLevel

Algorithm = Literal["static", "gmp", "set", "rigl"]
InitMethod = Literal["random", "topk", "from_zeros", "checkerboard", "given"]
"""How a first mask is made; ``given`` ones come from the user's program."""


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

    @property
    def reads_dense_gradients(self) -> bool:
        """Whether some updates read the gradient of weights that are zero."""
        return self.algorithm == "rigl" and self.update is not None

    def needs_dense_gradient(self, update: int) -> bool:
        """Return whether an update reads the gradient of weights that are zero."""
        return self.reads_dense_gradients and self.changes_at(update)

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

    def largest_density(self, shape: Sequence[int]) -> float:
        """Return a bound of the share of weights that are not zero after any update.

        It is 1 where weights start dense, or where their values, or the program, make the mask.
        """
        if self.level is None or not self.starts_sparse or self.init in ("from_zeros", "given"):
            return 1.0
        size = prod(shape)
        return self.groups * kept_of(size // self.groups, self.level.lowest) / size if size else 1.0

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
