"""Intervals of the predictions of rows, and how many published values they cover."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from validation.families.prediction import Compared
from validation.families.settings import model_name, setting_of
from validation.report.summary import belongs, grouped
from validation.report.tables import Table, percent
from waferstream.machine.intervals import SHARES, AnyInterval, Interval, Residual, Residuals, Share

_GROUPS = ("GPU training", "GPU inference", "training", "start-up", "micro-batch")
_OTHER_GROUPS = {
    "adaptation": "training",
    "evaluation": "start-up",
    "prefill": "inference",
    "decode": "inference",
    "end-to-end inference": "inference",
    "inference service": "service",
    "served requests": "service",
}
_KERNELS = "kernels"
_DIGITS = 5  # kept of an error: hosts differ in the last ones


def group_of(family: str) -> str:
    """Return the group of families whose errors have the same shape."""
    named = (group for group in _GROUPS if belongs(family, group))
    return next(named, _OTHER_GROUPS.get(family, _KERNELS))


def residuals_of(compared: Iterable[Compared], calibrated: Collection[str]) -> Residuals:
    """Return the errors of validation rows, and the calibrated rows that they are far from.

    Args:
        compared: Rows with their predictions.
        calibrated: Ids of the rows that fitted constants rest on; other calibration rows, on which
            nothing fitted rests, are evidence of nothing.
    """
    rows = [one for one in compared if one.row.use == "validation" or one.row.row_id in calibrated]
    near = Residuals(_residual(one) for one in rows if one.row.row_id in calibrated)
    tested = (_tested(one, near) for one in rows if one.row.row_id not in calibrated)
    return Residuals((*near.rows, *tested))


def _residual(one: Compared) -> Residual:
    described = one.row.described()
    setting = setting_of(described, one.family)
    return Residual(one.row.row_id, group_of(one.family), model_name(described), setting)


def _tested(one: Compared, calibrated: Residuals) -> Residual:
    bare = _residual(one)
    decades, _ = calibrated.nearest(bare.group, bare.setting)
    ratio = log(one.published / one.predicted)
    return replace(bare, log_ratio=round(ratio, _DIGITS), decades=round(decades, _DIGITS))


@dataclass(frozen=True)
class Judged:
    """A row and the interval of its prediction, which its own model has not widened."""

    compared: Compared
    group: str
    interval: AnyInterval

    def is_covered(self, share: Share) -> bool:
        """Return whether the published value lies in the interval of a share."""
        if not isinstance(self.interval, Interval):
            return False
        low, high = self.interval.around(self.compared.predicted, share)
        return low <= self.compared.published <= high


def judged(compared: Iterable[Compared], residuals: Residuals) -> list[Judged]:
    """Return rows with their intervals.

    The interval of a row that the residuals contain follows without the rows of its model; that of
    another row from all of them.
    """
    known = {row.row: row for row in residuals.rows}
    found = []
    for one in compared:
        bare = _residual(one)
        interval = residuals.interval(bare.setting)
        if one.row.row_id in known and isinstance(interval, Interval):
            others = residuals.without(known[one.row.row_id].model)
            interval = others.at(one.family, bare.group, interval.decades, interval.nearest)
        found.append(Judged(one, bare.group, interval))
    return found


def coverage_table(rows: Sequence[Judged]) -> Table:
    """Return the share of validation rows that intervals cover, for each group and for all."""
    validation = [row for row in rows if row.compared.row.use == "validation"]
    groups = {**grouped(validation, lambda row: row.group), "all": validation}
    header = (
        "group",
        "rows",
        *(f"in {name}" for name in SHARES.values()),
        "median 90 % interval",
        "unknown",
    )
    lines = [(name, *_coverage(members)) for name, members in groups.items() if members]
    return Table(header, lines, frozenset({1, 2, 3, 4, 5}))


def _coverage(rows: Sequence[Judged]) -> tuple[str, ...]:
    known = [row.interval for row in rows if isinstance(row.interval, Interval)]
    shares = (sum(row.is_covered(kind) for row in rows) / len(rows) for kind in SHARES)
    width = f"+{percent(median(one.nine_tenths for one in known) - 1)}" if known else "-"
    return (
        str(len(rows)),
        *(percent(share, 0) for share in shares),
        width,
        str(len(rows) - len(known)),
    )
