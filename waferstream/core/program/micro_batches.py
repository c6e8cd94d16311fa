"""Micro-batch policies: how many samples of a global batch a system processes at a time.

The micro-batch decides the order of every floating-point sum. It therefore depends on the batch
alone wherever it can, so that the weights are bitwise reproducible for every ``num_csx``.

| policy     | value of the flag | samples of a micro-batch                                |
|------------|-------------------|---------------------------------------------------------|
| integer    | 4                 | the valid size that is closest to that number           |
| auto       | auto (default)    | the largest that fits the wafer and leaves              |
|            |                   | max(8, num_csx) micro-batches                           |
| fill_wafer | fill_wafer        | those of the fewest rounds that the wafer allows        |
| explore    | explore, or a     | the size in that range with the shortest step on the    |
|            | range of sizes    | emulated machine                                        |
| none       | null              | the whole share of a system                             |
| your own   | my_module:MyOwn   | at most what a class derived from OwnPolicy returns     |

A batch need not divide. A size is valid if it is ceil(batch / k): it cuts the batch into k
micro-batches that differ by one sample at most, the larger ones first, as ``torch.tensor_split``
does (Cerebras developer documentation, "Automatic microbatching": a batch of 673 samples with
micro-batches of 168 is cut by 169). The valid sizes of every number of systems are among them,
because ceil(ceil(batch / num_csx) / k) = ceil(batch / (num_csx * k)).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isqrt
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.core.units import counted
from waferstream.core.user_code import IMPORT_PATH, import_derived

FLAG = "csx.performance.micro_batch_size"
SETTING = f"cstorch.backends.{FLAG} ({FLAG} in a params file)"
"""Where people set it."""

AUTO_MICRO_BATCHES = 8
"""Micro-batches that ``auto`` leaves in a batch, so that 1 to 8 systems cut it alike."""


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


ImportPath = Annotated[str, Field(pattern=IMPORT_PATH)]
"""The import path of a class of the user's."""

MicroBatchSize = Annotated[
    Literal["auto", "fill_wafer"] | Explore | PositiveInt | ImportPath | None,
    BeforeValidator(_explore_all),
]
"""``csx.performance.micro_batch_size`` (cerebras_pytorch 2.10); ``explore`` is all sizes."""


class OwnPolicy(ABC):
    """A policy of your own, by its import path (``my_module:MyPolicy``).

    What it returns decides bits of the weights, as the micro-batch does with any policy: it must
    depend on its arguments alone.
    """

    @abstractmethod
    def size(self, batch_size: int, num_csx: int, largest: int | None) -> int:
        """Return the most samples of a micro-batch; the next lower size that cuts evenly is taken.

        Args:
            batch_size: Samples of the global batch.
            num_csx: Systems that share the batch.
            largest: Samples that fit the wafer at a time; None where that is not known yet.
        """


@dataclass(frozen=True)
class MicroBatchPolicy:
    """The rule by which the samples of a micro-batch follow from batch, systems and wafer."""

    requested: str | Explore | int | None = "auto"

    @property
    def name(self) -> str:
        """``integer``, ``auto``, ``fill_wafer``, ``explore``, ``none``, or an import path."""
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
        return isinstance(self.requested, str)

    @property
    def range(self) -> SizeRange | None:
        """The sizes to compare; None for a policy that states its size."""
        return self.requested.explore if isinstance(self.requested, Explore) else None

    def size(self, batch_size: int, num_csx: int, largest: int | None = None) -> int:
        """Return the samples of the largest micro-batch, a valid size.

        Args:
            batch_size: Samples of the global batch.
            num_csx: Systems that share the batch.
            largest: Samples that fit the wafer at a time; None where that is not known yet.

        Raises:
            ConfigError: Some system has no sample, or the sizes have to be explored first.
        """
        share = share_of(batch_size, num_csx)
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
                return _automatic_size(batch_size, max(AUTO_MICRO_BATCHES, num_csx), limit)
            case "fill_wafer":
                return -(-share // rounds_of(batch_size, num_csx, limit))
            case None:
                return share
            case int():
                return closest_size(batch_size, self.requested)
            case path:
                own = import_derived(path, OwnPolicy, FLAG)().size(batch_size, num_csx, largest)
                return _own_size(batch_size, own, limit, path)

    def systems_key(self, batch_size: int, num_csx: int) -> int:
        """Return a number that only those numbers of systems share that cut the batch alike.

        On any wafer, so for any ``largest``. Raises ConfigError as ``size``.
        """
        match self.requested:
            case "auto":
                return max(AUTO_MICRO_BATCHES, num_csx)
            case int():
                size = self.size(batch_size, num_csx)
                return Cut.of(batch_size, size, num_csx).num_micro_batches
            case _:
                return num_csx

    def check(self, batch_size: int, num_csx: int, group_size: int = 1) -> None:
        """Raise ConfigError unless every system gets a micro-batch of a global batch.

        The micro-batches must have whole groups of ``group_size`` samples.
        """
        if self.range is not None:
            explored_sizes(batch_size, self.range, num_csx, group_size)
            return
        size = self.size(batch_size, num_csx)
        if isinstance(self.requested, int):
            check_batch(batch_size, size, num_csx)
        check_groups(Cut.of(batch_size, size, num_csx), group_size)

    def describe(self, cut: Cut) -> str:
        """Return one line with batch, micro-batches and policy, for people."""
        at_most = " at most" if cut.num_short else ""
        return (
            f"Effective batch size is {cut.batch_size}: {cut.num_micro_batches} x micro-batch "
            f"{cut.size}{at_most} (policy: {self.name})"
        )

    def adjustment(self, size: int) -> str | None:
        """Return a line for people if ``size`` is not the requested integer."""
        if not isinstance(self.requested, int) or self.requested == size:
            return None
        return (
            f"Micro-batch size {self.requested} was adjusted to {size}, so that all micro-batches "
            "of the batch are of even size"
        )


FILL_WAFER = MicroBatchPolicy("fill_wafer")


def _own_size(batch_size: int, wanted: object, limit: int, path: str) -> int:
    """Return the next valid size below what a policy of the user's returned, and below a limit."""
    if not isinstance(wanted, int) or wanted < 1:
        raise ConfigError(
            "a policy must return the samples of a micro-batch",
            code="policy-returns-no-size",
            where=f"{FLAG}, {path}",
            value=repr(wanted),
            rule="a whole number above 0",
        )
    return _size_of(batch_size, -(-batch_size // min(wanted, limit)))


def share_of(batch_size: int, num_csx: int) -> int:
    """Return the samples of the busiest system; ConfigError if some system has none."""
    check_systems(batch_size, num_csx)
    return -(-batch_size // num_csx)


def rounds_of(batch_size: int, num_csx: int, micro_batch_size: int) -> int:
    """Return how often the weights stream in a step; ConfigError as ``share_of``."""
    return -(-share_of(batch_size, num_csx) // micro_batch_size)


@dataclass(frozen=True)
class Cut:
    """A global batch in micro-batches that differ by one sample at most, the larger ones first."""

    batch_size: int
    num_micro_batches: int

    @classmethod
    def of(cls, batch_size: int, micro_batch_size: int, num_csx: int = 1) -> Cut:
        """Return the fewest micro-batches of a size at most, one for each system at least."""
        return cls(batch_size, max(num_csx, -(-batch_size // micro_batch_size)))

    @property
    def size(self) -> int:
        """Samples of the first micro-batch."""
        return -(-self.batch_size // self.num_micro_batches)

    @property
    def num_short(self) -> int:
        """Micro-batches at the end that have one sample less than the first."""
        return self.size * self.num_micro_batches - self.batch_size


def closest_size(batch_size: int, wanted: int) -> int:
    """Return the valid size that is closest to a number; of two equally close ones the smaller."""
    below = _size_of(batch_size, -(-batch_size // wanted))
    above = _size_of(batch_size, max(1, batch_size // wanted))
    return min(below, above, key=lambda size: (abs(size - wanted), size))


def explored_sizes(
    batch_size: int, allowed: SizeRange, num_csx: int, group_size: int = 1
) -> list[int]:
    """Return all sizes to compare, smallest first; ConfigError if the range holds none.

    They are the valid sizes of a system's share, which fill every round, as far as they cut no
    group of ``group_size`` samples.
    """
    share = share_of(batch_size, num_csx)
    last = share if allowed.max is None else allowed.max
    few = range(1, isqrt(share) + 2)  # sizes of so many rounds, and so small sizes, are all
    found = {_size_of(share, count) for count in few}
    found |= {_size_of(share, -(-share // size)) for size in few}
    sizes = [
        size
        for size in sorted(found)
        if allowed.min <= size <= last
        and not cuts_groups(Cut.of(batch_size, size, num_csx), group_size)
    ]
    if not sizes:
        whole = f", in whole groups of {group_size} that share a loss" if group_size > 1 else ""
        raise ConfigError(
            "there is no micro-batch size to explore",
            code="no-size-to-explore",
            where=FLAG,
            value=f"{allowed.min} to {last}",
            rule=f"ceil({share} / k) for some k: a system's share of batch_size {batch_size} is "
            f"{counted(share, 'sample')}{whole}",
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
    """Raise ConfigError if micro-batches of this size leave a system without any."""
    num_micro_batches = Cut.of(batch_size, micro_batch_size).num_micro_batches
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


def cuts_groups(cut: Cut, group_size: int) -> bool:
    """Tell whether a micro-batch has a part of a group of consecutive samples."""
    return bool(cut.size % group_size or (cut.num_short and group_size > 1))


def check_groups(cut: Cut, group_size: int) -> None:
    """Raise ConfigError unless every micro-batch has whole groups of samples that share a loss."""
    if cuts_groups(cut, group_size):
        at_most = " at most" if cut.num_short else ""
        raise ConfigError(
            "a micro-batch must be a multiple of the samples that share a loss",
            code="group-cut",
            where=FLAG,
            value=f"batch_size {cut.batch_size}, micro-batches of {cut.size}{at_most}, groups of "
            f"{group_size} (group_size of the model)",
            rule="a group is in one micro-batch, so that no cluster decides what it holds",
            remedy="state a multiple that divides batch_size, or change group_size",
        )


def _automatic_size(batch_size: int, wanted: int, limit: int) -> int:
    """Return the largest valid size up to ``limit`` that leaves ``wanted`` micro-batches.

    Micro-batches of one size are preferred, if ``wanted`` systems take as many rounds with them.
    """
    wanted = min(batch_size, wanted)
    most = batch_size if wanted == 1 else (batch_size - 1) // (wanted - 1)
    size = _size_of(batch_size, -(-batch_size // min(limit, most)))
    even = largest_divisor(batch_size, size)
    rounds = rounds_of(batch_size, wanted, size)
    return even if rounds_of(batch_size, wanted, even) == rounds else size


def largest_divisor(batch_size: int, at_most: int) -> int:
    """Return the largest divisor of the batch that is not above ``at_most``."""
    small = [size for size in range(1, isqrt(batch_size) + 1) if batch_size % size == 0]
    large = (batch_size // size for size in small)
    return max(size for size in (*small, *large) if size <= at_most)


def _size_of(batch_size: int, num_micro_batches: int) -> int:
    return Cut(batch_size, num_micro_batches).size
