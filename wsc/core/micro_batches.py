"""Micro-batch policies: how many samples of a global batch a system processes at a time.

The micro-batch decides the order of every floating-point sum. It therefore depends on the batch
alone wherever it can, so that the weights are bitwise reproducible for every ``num_csx``.

| policy     | value of the flag | samples of a micro-batch                                |
|------------|-------------------|---------------------------------------------------------|
| integer    | 4                 | that number, which must divide the batch                |
| auto       | auto (default)    | the largest divisor of the batch that fits the wafer    |
|            |                   | and leaves max(8, num_csx) micro-batches                |
| fill_wafer | fill_wafer        | those of the fewest rounds that the wafer allows        |
| explore    | explore, or a     | the divisor in that range with the shortest step on the |
|            | range of sizes    | emulated machine                                        |
| none       | null              | the whole share of a system                             |
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from wsc.core.config import Config
from wsc.core.errors import ConfigError
from wsc.core.units import counted

FLAG = "csx.performance.micro_batch_size"
AUTO_MICRO_BATCHES = 8


class SizeRange(Config):
    """Sizes from ``min`` to ``max`` samples, both included; unbounded without ``max``."""

    min: PositiveInt = 1
    max: PositiveInt | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Explore(Config):
    """Comparison of the sizes of a range on the emulated machine; compiles only."""

    explore: SizeRange = Field(default_factory=SizeRange)


def _explore_all(value: object) -> object:
    return {"explore": {}} if value == "explore" else value


MicroBatchSize = Annotated[
    Literal["auto", "fill_wafer"] | Explore | PositiveInt | None, BeforeValidator(_explore_all)
]
"""``csx.performance.micro_batch_size`` (cluster_interface.md, 2.3); ``explore`` is all sizes."""


@dataclass(frozen=True)
class MicroBatchPolicy:
    """The rule by which the samples of a micro-batch follow from batch, systems and wafer."""

    requested: Literal["auto", "fill_wafer"] | Explore | int | None = "auto"

    @property
    def name(self) -> str:
        """``integer``, ``auto``, ``fill_wafer``, ``explore`` or ``none``."""
        match self.requested:
            case None:
                return "none"
            case Explore():
                return "explore"
            case int():
                return "integer"
            case _:
                return self.requested

    @property
    def label(self) -> int | str:
        """The requested integer, or the name of any other policy."""
        return self.requested if isinstance(self.requested, int) else self.name

    @property
    def depends_on_wafer(self) -> bool:
        """Whether the size is lowered until a micro-batch fits the wafer."""
        return self.requested in ("auto", "fill_wafer")

    @property
    def range(self) -> SizeRange | None:
        """The sizes to compare; None for a policy that states its size."""
        return self.requested.explore if isinstance(self.requested, Explore) else None

    def size(
        self, batch_size: int, num_csx: int, largest: int | None = None, *, simulated: bool = False
    ) -> int:
        """Return the samples per micro-batch.

        Args:
            batch_size: Samples of the global batch.
            num_csx: Systems that share the batch.
            largest: Samples that fit the wafer at a time; None where that is not known yet.
            simulated: Whether the last micro-batch of a system may be smaller than the others.
                The micro-batches of a run are all of one size, so that size divides the batch.

        Raises:
            ConfigError: The batch cannot be cut, or the sizes have to be explored first.
        """
        check_systems(batch_size, num_csx)
        limit = batch_size if largest is None else max(1, largest)
        match self.requested:
            case Explore():
                raise ConfigError(
                    "explore states no size of its own",
                    code="explore-states-no-size",
                    where=FLAG,
                    rule="explore goes with --compile_only or --simulate",
                    remedy="compile with --compile_only, then set the size that it names",
                )
            case "auto":
                wanted = min(batch_size, max(AUTO_MICRO_BATCHES, num_csx))
                return largest_divisor(batch_size, min(batch_size // wanted, limit))
            case "fill_wafer" if simulated:
                rounds = rounds_of(batch_size, num_csx, limit)
                return -(-share_of(batch_size, num_csx) // rounds)
            case "fill_wafer":
                return largest_divisor(batch_size, min(batch_size // num_csx, limit))
            case None if simulated:
                return share_of(batch_size, num_csx)
            case None:
                return _checked_divisor(batch_size, share_of(batch_size, num_csx), num_csx)
            case int():
                return _checked_divisor(batch_size, self.requested, num_csx)

    def check(self, batch_size: int, num_csx: int, *, simulated: bool = False) -> None:
        """Raise ConfigError unless every system gets a micro-batch of a global batch."""
        if self.range is not None:
            explored_sizes(batch_size, self.range, num_csx)
            return
        size = self.size(batch_size, num_csx, simulated=simulated)
        shares_samples = simulated and self.requested in (None, "fill_wafer")
        if not shares_samples:
            check_batch(batch_size, size, num_csx)

    def describe(self, batch_size: int, size: int, num_micro_batches: int) -> str:
        """Return one line with batch, micro-batches and policy, for people."""
        at_most = "" if num_micro_batches * size == batch_size else " at most"
        return (
            f"Effective batch size is {batch_size}: {num_micro_batches} x micro-batch "
            f"{size}{at_most} (policy: {self.name})"
        )


FILL_WAFER = MicroBatchPolicy("fill_wafer")


def share_of(batch_size: int, num_csx: int) -> int:
    """Return the samples of the busiest system; ConfigError if some system has none."""
    check_systems(batch_size, num_csx)
    return -(-batch_size // num_csx)


def rounds_of(batch_size: int, num_csx: int, micro_batch_size: int) -> int:
    """Return how often the weights stream in a step; ConfigError as ``share_of``.

    All rounds but the last are of one size. Valid sizes of a compiler that is free to choose are
    therefore ceil(share / rounds) (Cerebras developer documentation, "Automatic microbatching").
    """
    return -(-share_of(batch_size, num_csx) // micro_batch_size)


def largest_divisor(batch_size: int, at_most: int) -> int:
    """Return the largest divisor of the batch that is not above ``at_most``."""
    return max(_divisors(batch_size, at_most))


def explored_sizes(batch_size: int, allowed: SizeRange, num_csx: int) -> list[int]:
    """Return all sizes to compare, smallest first; ConfigError if the range holds none.

    Each divides the batch and leaves a micro-batch for every system.
    """
    check_systems(batch_size, num_csx)
    last = batch_size if allowed.max is None else allowed.max
    sizes = [size for size in _sizes(batch_size, num_csx) if allowed.min <= size <= last]
    if not sizes:
        raise ConfigError(
            "there is no micro-batch size to explore",
            code="no-size-to-explore",
            where=FLAG,
            value=f"{allowed.min} to {last}",
            rule=f"a divisor of batch_size {batch_size} that leaves {num_csx} micro-batches",
            remedy="widen min and max",
        )
    return sizes


def check_systems(batch_size: int, num_csx: int) -> None:
    """Raise ConfigError unless every system has a sample of the batch."""
    if not 1 <= num_csx <= batch_size:
        raise ConfigError(
            "the global batch is smaller than the number of systems",
            code="batch-below-systems",
            where="batch_size, num_csx",
            value=f"batch_size {batch_size}, num_csx {num_csx}",
            rule="1 <= num_csx <= batch_size",
            remedy="raise batch_size or lower num_csx",
        )


def check_batch(batch_size: int, micro_batch_size: int, num_csx: int) -> None:
    """Raise ConfigError if a batch of equal micro-batches leaves a system without any."""
    num_micro_batches = batch_size // micro_batch_size
    if num_micro_batches < num_csx:
        share = counted(num_micro_batches, "micro-batch", "micro-batches")
        raise ConfigError(
            f"{num_csx} CS systems have only {share} to share",
            code="system-without-micro-batch",
            where=FLAG,
            value=f"batch_size {batch_size}, micro_batch_size {micro_batch_size}",
            rule="batch_size / micro_batch_size is at least num_csx",
            remedy="lower csx.performance.micro_batch_size or num_csx, or raise batch_size",
        )


def _checked_divisor(batch_size: int, size: int, num_csx: int) -> int:
    if batch_size % size:
        near = sorted(_sizes(batch_size, num_csx), key=lambda divisor: abs(divisor - size))[:3]
        raise ConfigError(
            f"a global batch of {batch_size} cannot be cut into micro-batches of {size}",
            code="batch-not-divisible",
            where=FLAG,
            value=size,
            rule="micro_batch_size divides batch_size",
            remedy=f"choose {' or '.join(map(str, sorted(near)))}",
        )
    return size


def _sizes(batch_size: int, num_csx: int) -> list[int]:
    """Return the divisors of the batch that leave a micro-batch for every system."""
    return _divisors(batch_size, batch_size // num_csx)


def _divisors(number: int, at_most: int) -> list[int]:
    """Return the divisors up to ``at_most`` in ascending order.

    The small ones are found by trial; the large ones are their partners.
    """
    small = [size for size in range(1, isqrt(number) + 1) if number % size == 0]
    both = {*small, *(number // size for size in small)}
    return sorted(size for size in both if size <= at_most)
