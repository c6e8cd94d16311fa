"""What a search chooses from, what it wants, and what it has found.

A candidate is a machine, a batch, a number of systems, and a micro-batch, which says how often the
weights stream in a step. What a larger batch costs in tokens to reach a loss is not modelled: the
batches are a choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, get_args

from waferstream.core.errors import ConfigError
from waferstream.machine.intervals import Interval
from waferstream.reports.curve.records import point_record
from waferstream.reports.curve.result import CurvePoint
from waferstream.reports.economics import SECONDS_PER_DAY, TrainingBill
from waferstream.reports.records import Record
from waferstream.studies.grid import Grid, Scalar

MOST_PLACES = 20_000
"""Batches times numbers of systems times machines of a search; more are refused."""

Objective = Literal["days", "cost", "energy"]
UNITS: Mapping[Objective, str] = {"days": "days", "cost": "USD", "energy": "kWh"}


@dataclass(frozen=True)
class Goal:
    """What is to be least, and what no candidate may exceed."""

    objective: Objective
    most_days: float | None = None
    most_usd: float | None = None
    most_kwh: float | None = None

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            raise ConfigError(
                "the objective of a search must be a known one",
                code="not-one-of",
                where="--objective",
                value=self.objective,
                rule=" or ".join(get_args(Objective)),
            )
        for unit in ("days", "usd", "kwh"):
            _check_limit(f"--most_{unit}", getattr(self, f"most_{unit}"))

    def value(self, bill: TrainingBill) -> float:
        """Return what is to be least."""
        return _amounts(bill)[self.objective]

    @property
    def unit(self) -> str:
        """The unit of the value."""
        return UNITS[self.objective]

    def range_of(self, candidate: Candidate) -> tuple[float | None, float | None]:
        """Return the value at both ends of the 90 % interval of the throughput; None if unknown.

        All amounts shrink as the throughput grows: time, and what every hour takes.
        """
        interval, value = candidate.point.interval, self.value(candidate.bill)
        return interval.around(value) if isinstance(interval, Interval) else (None, None)

    def exceeded(self, bill: TrainingBill) -> list[str]:
        """Return the limits that a bill exceeds."""
        limits: dict[Objective, float | None] = {
            "days": self.most_days, "cost": self.most_usd, "energy": self.most_kwh,
        }  # fmt: skip
        amounts = _amounts(bill)
        return [name for name, most in limits.items() if most is not None and amounts[name] > most]


def _check_limit(flag: str, most: float | None) -> None:
    if most is not None and not 0 < most < inf:
        raise ConfigError(
            "a limit of a search must be an amount",
            code="out-of-range",
            where=flag,
            value=most,
            rule="a number above 0",
            remedy="leave the limit out, if there is none",
        )


def _amounts(bill: TrainingBill) -> dict[Objective, float]:
    return {
        "days": bill.duration_s / SECONDS_PER_DAY,
        "cost": bill.footprint.usd,
        "energy": bill.footprint.kwh,
    }


@dataclass(frozen=True)
class Space:
    """What a search chooses from."""

    batches: Sequence[int]
    """Samples of a step over all systems."""
    counts: Sequence[int]
    """Numbers of systems, ascending."""
    machines: Grid = field(default_factory=lambda: Grid(()))
    """Keys of the machine, each with its choices."""

    def __post_init__(self) -> None:
        places = len(self.batches) * len(self.counts) * self.machines.num_points
        if places > MOST_PLACES:
            raise ConfigError(
                f"the search has {places:,} places",
                code="search-too-large",
                where="--batch_size, --num_csx, --over",
                value=f"{len(self.batches):,} batches x {len(self.counts):,} numbers of systems x "
                f"{self.machines.num_points:,} machines",
                rule=f"at most {MOST_PLACES:,}, each with all its micro-batches",
                remedy="give fewer batches, or a range with a factor, as in 64-1024:x2",
            )
        for axis in self.machines.axes:
            if axis.key.home != "machine":
                raise ConfigError(
                    "a search chooses among machines; other keys have flags of their own",
                    code="search-key",
                    where="--over",
                    value=axis.key.name,
                    rule="keys that begin with machine, or system",
                    remedy="--batch_size and --num_csx; waferstream study for keys of the model",
                )


@dataclass(frozen=True)
class Candidate:
    """A simulated choice, with the bill of the budget."""

    machine: str
    values: Mapping[str, Scalar]
    batch_size: int
    point: CurvePoint

    @property
    def bill(self) -> TrainingBill:
        """What the training takes."""
        assert self.point.bill is not None, "a search has a budget"
        return self.point.bill

    @property
    def record(self) -> Record:
        """All of the candidate by the names of columns."""
        point = {"num_csx": self.point.num_csx, **point_record(self.point, self.batch_size)}
        return {"machine": self.machine, **self.values, **point}


@dataclass(frozen=True)
class SearchResult:
    """All candidates that were tried and keep the limits, the best first."""

    goal: Goal
    candidates: tuple[Candidate, ...]
    tried: int
    possible: int
    """How many candidates there are."""
    refused: Mapping[str, int]
    """Tried candidates that cannot be, by the code of their error."""
    exceeded: Mapping[str, int]
    """Tried candidates beyond a limit, by its name."""
    total_s: float

    @property
    def is_exhaustive(self) -> bool:
        """Whether every candidate was tried."""
        return self.tried == self.possible

    def distinct(self, most: int) -> list[Candidate]:
        """Return the best candidates, of those that differ in the micro-batch alone the first."""
        kept: dict[object, Candidate] = {}
        for each in self.candidates:
            place = (*each.values.values(), each.batch_size, each.point.num_csx)
            kept.setdefault(place, each)
        return list(kept.values())[:most]

    @property
    def records(self) -> list[Record]:
        """A record for each candidate."""
        return [candidate.record for candidate in self.candidates]


def batches_around(batch_size: int) -> tuple[int, ...]:
    """Return a batch, and those of up to four times more or less in steps of two."""
    found = (batch_size // 4, batch_size // 2, batch_size, 2 * batch_size, 4 * batch_size)
    return tuple(sorted({max(1, batch) for batch in found}))
