"""Errors in groups, and whether they meet the goals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeVar

from validation.families.replays import Compared
from validation.report.tables import percent
from validation.rows.row import Evidence, Use

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by key; keys in the order of their first items."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors of some rows; 0.1 is 10 %."""

    count: int
    mean: float
    median: float
    max: float
    worst_row: str

    @classmethod
    def of(cls, compared: Sequence[Compared]) -> Errors:
        """Errors of at least one row."""
        worst = max(compared, key=lambda one: abs(one.error))
        errors = [abs(one.error) for one in compared]
        return cls(len(errors), fmean(errors), median(errors), max(errors), worst.row.row_id)


@dataclass(frozen=True)
class Summary:
    """Errors of the rows of a family with the same evidence and use."""

    family: str
    evidence: Evidence
    use: Use
    errors: Errors


def summaries(compared: Sequence[Compared]) -> tuple[Summary, ...]:
    """One for each family, evidence and use."""
    groups = grouped(compared, lambda one: (one.family, one.row.evidence, one.row.use))
    return tuple(Summary(*key, Errors.of(rows)) for key, rows in sorted(groups.items()))


@dataclass(frozen=True)
class Goal:
    """The error that some families, together, may have on validation rows."""

    name: str
    families: str
    """The first word or words of their names."""
    mean: float
    worst: float | None = None

    def errors(self, compared: Iterable[Compared]) -> Errors | None:
        """Errors on validation rows; None if there are none."""
        rows = [
            one
            for one in compared
            if one.row.use == "validation" and belongs(one.family, self.families)
        ]
        return Errors.of(rows) if rows else None

    def met_by(self, errors: Errors) -> bool:
        """Whether neither mean nor worst is larger than it may be."""
        return errors.mean <= self.mean and (self.worst is None or errors.max <= self.worst)

    def __str__(self) -> str:
        worst = "" if self.worst is None else f", worst at most {percent(self.worst, 0)}"
        return f"mean at most {percent(self.mean, 0)}{worst}"


def belongs(family: str, families: str) -> bool:
    """Whether ``family`` is the one of this name or, like ``training CS-2``, a part of it."""
    return family == families or family.startswith(f"{families} ")


GOALS = (
    Goal("collectives", "collectives", 0.02),
    Goal("single PE", "single PE", 0.10),
    Goal("GEMM", "GEMM", 0.10),
    Goal("GEMV", "GEMV", 0.10),
    Goal("training on CS-2 and CS-3", "training", 0.08, worst=0.20),
    Goal("prefill", "prefill", 0.10),
    Goal("decode", "decode", 0.10),
    Goal("GPU clusters, training", "GPU training", 0.08),
    Goal("GPU clusters, inference", "GPU inference", 0.08),
)
"""What a model has to reach to be cited."""
