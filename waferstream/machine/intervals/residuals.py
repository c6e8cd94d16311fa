"""Errors of predictions on published rows, and the intervals that follow from them.

The logarithm of measured over predicted is taken as ``scale x (1 + decades) x z``:

- the *scale* is that of a family: the mean absolute error of its models, each model counted once,
  since rows of one model err alike. A family of few models is drawn to its group (all training on
  GPUs, ...), and a group to all rows;
- *decades* is the distance to the nearest calibrated row in shape, batch and machine. The
  likelihood of the errors is greatest where they double in a decade;
- *z* has no assumed shape. Its quantiles are those of the rows, each with the scale that follows
  without the row's own model; rows of other groups count as a few.

``residuals.json`` is written by ``python -m validation --residuals``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from math import exp, log
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter

from waferstream.host.files import replacing
from waferstream.machine.intervals.interval import AnyInterval, Interval, Unknown
from waferstream.machine.intervals.setting import Setting, decades_between

RESIDUALS = Path(__file__).with_name("residuals.json")

_WIDENING = 1.0  # growth of the scale in a decade, relative to that at a calibrated row
_FAR_DECADES = 1.0  # taken for the distance in a group without calibrated rows
_SMALLEST = 0.002  # published values have three digits
_PRIOR_MODELS = 1.0  # models as which a larger group counts in the scale of a smaller one
_BORROWED_ROWS = 20.0  # rows as which all other groups count in the quantiles of a group


@dataclass(frozen=True)
class Residual:
    """A published row: a calibrated one, or one with the error of its prediction."""

    row: str
    group: str
    """Families that share the shape of their errors: ``training``, ``GPU training``, ..."""
    model: str
    """Rows of one model are left out together."""
    setting: Setting
    log_ratio: float | None = None
    """Logarithm of measured over predicted; None where a constant was fitted to the row."""
    decades: float = 0.0
    """Distance to the nearest calibrated row when it was predicted."""

    @property
    def error(self) -> float:
        """The absolute logarithm of measured over predicted, of a row that has one."""
        assert self.log_ratio is not None
        return abs(self.log_ratio)

    @property
    def is_calibrated(self) -> bool:
        """Whether a constant was fitted to the row."""
        return self.log_ratio is None


_ROWS = TypeAdapter(tuple[Residual, ...])


class Residuals:
    """Published rows from which intervals follow."""

    def __init__(self, rows: Iterable[Residual]) -> None:
        self.rows = tuple(rows)
        self.tested = tuple(row for row in self.rows if not row.is_calibrated)
        """Rows with an error."""
        self._scale = cache(self._mean_error)
        self._quantile = cache(self._quantile_of)
        self.without = cache(self._without)
        """Return the rows of all models but one."""

    @classmethod
    def read(cls, path: Path = RESIDUALS) -> Residuals:
        """Read the rows of a file."""
        return cls(_ROWS.validate_json(path.read_bytes()))

    def write(self, path: Path = RESIDUALS) -> None:
        """Write the rows to a file, one in a line."""
        lines = ",\n".join(json.dumps(asdict(row)) for row in self.rows)
        with replacing(path) as partial:
            partial.write_text(f"[\n{lines}\n]\n", encoding="utf-8")

    def interval(self, setting: Setting) -> AnyInterval:
        """Return the interval of a prediction, Unknown for a machine that nobody measured."""
        group = self.group_of(setting.family)
        members = [row for row in self.rows if row.group == group]
        if group is None or all(row.setting.machine != setting.machine for row in members):
            return _not_measured(setting)
        decades, nearest = self.nearest(group, setting)
        return self.at(setting.family, group, decades, nearest)

    def at(self, family: str, group: str, decades: float, nearest: str = "") -> Interval:
        """Return the interval of a family at a distance from the nearest calibrated row."""
        width = _width(self._scale(family, group), decades)
        half, nine_tenths = (exp(width * self._quantile(group, share)) for share in (0.5, 0.9))
        return Interval(half, nine_tenths, decades, nearest)

    def nearest(self, group: str, setting: Setting) -> tuple[float, str]:
        """Return the distance of the nearest calibrated row of a group, and that row."""
        calibrated = [row for row in self.rows if row.group == group and row.is_calibrated]
        found = ((decades_between(setting, row.setting), row.row) for row in calibrated)
        return min(found, default=(_FAR_DECADES, ""))

    def group_of(self, family: str) -> str | None:
        """Return the group of a family, None for a family without rows."""
        return next((row.group for row in self.rows if row.setting.family == family), None)

    def _without(self, model: str) -> Residuals:
        return Residuals(row for row in self.rows if row.model != model)

    def _mean_error(self, family: str, group: str, left_out: str | None = None) -> float:
        """Return the scale of a family: its mean absolute error beside a calibrated row."""
        rows = [row for row in self.tested if row.model != left_out]
        of_group = [row for row in rows if row.group == group]
        of_family = [row for row in of_group if row.setting.family == family]
        scale = exp(fmean(map(log, _errors(rows)))) if rows else _SMALLEST
        for part in (of_group, of_family):
            scale = _drawn(_errors(part), scale)
        return scale

    @cached_property
    def _standardised(self) -> tuple[tuple[str, float], ...]:
        """Group and z of each row."""
        return tuple((row.group, row.error / self._expected(row)) for row in self.tested)

    def _expected(self, row: Residual) -> float:
        return _width(self._scale(row.setting.family, row.group, row.model), row.decades)

    def _quantile_of(self, group: str, share: float) -> float:
        """Return the z that a share of the rows of a group keeps."""
        is_own = [of == group for of, _ in self._standardised]
        others = len(is_own) - sum(is_own)
        weights = [1.0 if own else _BORROWED_ROWS / others for own in is_own]
        return _weighted_quantile([z for _, z in self._standardised], weights, share)


def _errors(rows: Iterable[Residual]) -> list[float]:
    """Return the mean absolute error of each model, as beside a calibrated row."""
    by_model: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(max(row.error, _SMALLEST) / _width(1.0, row.decades))
    return [fmean(errors) for errors in by_model.values()]


def _drawn(errors: Sequence[float], prior: float) -> float:
    """Return the mean of errors, drawn to a prior the more, the fewer they are."""
    if not errors:
        return prior
    known = len(errors)
    return exp((_PRIOR_MODELS * log(prior) + known * log(fmean(errors))) / (_PRIOR_MODELS + known))


def _width(scale: float, decades: float) -> float:
    return scale * (1 + _WIDENING * decades)


def _weighted_quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Return the least value that this share of the weights, with one row more, does not exceed."""
    ordered = sorted(zip(values, weights, strict=True))
    wanted, reached = share * (sum(weights) + 1), 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= wanted:
            return value
    return ordered[-1][0]


def _not_measured(setting: Setting) -> Unknown:
    return Unknown(
        f"nobody has published a run on a {setting.machine} (family {setting.family})",
        "it would take one in validation/data, with the sizes of its model and batch",
    )


@cache
def published_residuals() -> Residuals:
    """Return the rows of ``residuals.json``."""
    return Residuals.read()


def interval_of(setting: Setting) -> AnyInterval:
    """Return the interval of a prediction, from all published rows."""
    return published_residuals().interval(setting)
