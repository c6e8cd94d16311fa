"""How a global batch is cut into micro-batches: never by the number of systems.

The micro-batch decides the order of every floating-point sum, so it depends on the batch alone
wherever it can; that is what keeps the weights the same for every ``num_csx``.
"""

from __future__ import annotations

from math import isqrt
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from wsc.core.config import Config
from wsc.core.errors import ConfigError
from wsc.core.units import counted

AUTO_MICRO_BATCHES = 8


class SizeRange(Config):
    """Sizes from ``min`` to ``max`` samples, both included; without ``max`` there is no end."""

    min: PositiveInt = 1
    max: PositiveInt | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Explore(Config):
    """Compare the sizes of a range by the emulated clock; compiles only."""

    explore: SizeRange = Field(default_factory=SizeRange)


def _explore_all(value: object) -> object:
    return {"explore": {}} if value == "explore" else value


MicroBatchSize = Annotated[
    Literal["auto"] | Explore | PositiveInt | None, BeforeValidator(_explore_all)
]
"""``csx.performance.micro_batch_size`` (cluster_interface.md, 2.3); ``explore`` is all sizes."""


def micro_batch_size(batch_size: int, requested: int | Literal["auto"] | None, num_csx: int) -> int:
    """Samples per micro-batch.

    An integer is taken as it is and must divide the batch. ``auto`` is the largest divisor that
    leaves at least max(8, num_csx) micro-batches (or one sample each, if the batch is smaller), so
    it is the same for 1 to 8 systems. None gives every system one micro-batch. Raises ConfigError
    where the batch cannot be cut so.
    """
    check_systems(batch_size, num_csx)
    if requested == "auto":
        wanted = min(batch_size, max(AUTO_MICRO_BATCHES, num_csx))
        return largest_divisor(batch_size, batch_size // wanted)
    size = -(-batch_size // num_csx) if requested is None else requested
    if batch_size % size:
        near = sorted(_sizes(batch_size, num_csx), key=lambda divisor: abs(divisor - size))[:3]
        raise ConfigError(
            f"a global batch of {batch_size} cannot be cut into micro-batches of {size}",
            where="csx.performance.micro_batch_size",
            value=requested,
            rule="micro_batch_size divides batch_size",
            remedy=f"choose {' or '.join(map(str, sorted(near)))}",
        )
    return size


def largest_divisor(batch_size: int, at_most: int) -> int:
    """The largest micro-batch of at most so many samples that divides the batch."""
    return max(_divisors(batch_size, at_most))


def explored_sizes(batch_size: int, allowed: SizeRange, num_csx: int) -> list[int]:
    """All sizes to compare, smallest first: every system gets a micro-batch of each.

    Raises ConfigError if the range holds none.
    """
    check_systems(batch_size, num_csx)
    last = batch_size if allowed.max is None else allowed.max
    sizes = [size for size in _sizes(batch_size, num_csx) if allowed.min <= size <= last]
    if not sizes:
        raise ConfigError(
            "there is no micro-batch size to explore",
            where="csx.performance.micro_batch_size",
            value=f"{allowed.min} to {last}",
            rule=f"a divisor of batch_size {batch_size} that leaves {num_csx} micro-batches",
            remedy="widen min and max",
        )
    return sizes


def check_systems(batch_size: int, num_csx: int) -> None:
    """ConfigError unless every system has a sample of the batch."""
    if not 1 <= num_csx <= batch_size:
        raise ConfigError(
            "the global batch is smaller than the number of systems",
            where="batch_size, num_csx",
            value=f"batch_size {batch_size}, num_csx {num_csx}",
            rule="1 <= num_csx <= batch_size",
            remedy="raise batch_size or lower num_csx",
        )


def check_batch(batch_size: int, micro_batch_size: int, num_csx: int) -> None:
    """ConfigError if a global batch, cut into micro-batches, leaves a system without any."""
    num_micro_batches = batch_size // micro_batch_size
    if num_micro_batches < num_csx:
        share = counted(num_micro_batches, "micro-batch", "micro-batches")
        raise ConfigError(
            f"{num_csx} CS systems have only {share} to share",
            where="csx.performance.micro_batch_size",
            value=f"batch_size {batch_size}, micro_batch_size {micro_batch_size}",
            rule="batch_size / micro_batch_size is at least num_csx",
            remedy="lower csx.performance.micro_batch_size or num_csx, or raise batch_size",
        )


def check_shares(
    batch_size: int, requested: int | Literal["auto"] | Explore | None, num_csx: int
) -> None:
    """ConfigError unless a batch, cut as asked for, has a micro-batch for every system."""
    if isinstance(requested, Explore):
        explored_sizes(batch_size, requested.explore, num_csx)
    else:
        check_batch(batch_size, micro_batch_size(batch_size, requested, num_csx), num_csx)


def _sizes(batch_size: int, num_csx: int) -> list[int]:
    """Divisors of the batch that leave a micro-batch for every system."""
    return _divisors(batch_size, batch_size // num_csx)


def _divisors(number: int, at_most: int) -> list[int]:
    """In ascending order; the small ones are found by trial, the large ones are their partners."""
    small = [size for size in range(1, isqrt(number) + 1) if number % size == 0]
    both = {*small, *(number // size for size in small)}
    return sorted(size for size in both if size <= at_most)
