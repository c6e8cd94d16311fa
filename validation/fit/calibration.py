"""Fit constants by least squares, to calibration rows only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from validation.families.settings import model_name
from validation.rows.row import CannotPredict, Row
from waferstream.core.errors import ConfigError
from waferstream.core.units import counted

Constants = dict[str, float]
"""Values by name: ``Class.field``, or ``field`` where no other class has it."""

Loss = Literal["linear", "soft_l1"]

_TOLERANCE = 1e-12
_SPREAD = 0.15
"""Relative difference between two runs of the same job, by the logs of T0092 and T0098."""


@dataclass(frozen=True)
class Fit:
    """Procedure that derives the constants of a family from its calibration rows."""

    family: str
    fit: Callable[[Sequence[Row]], Constants]
    """Return constants from calibration rows with positive values; may raise CannotPredict."""
    predict: Callable[[Row, Constants], float]
    """Return the prediction of a row, in its own unit, with other constants than those in use."""


def calibrate(fit: Fit, rows: Sequence[Row]) -> Constants:
    """Return the fitted constants by name.

    Raises:
        ConfigError: There is no row, a row is not marked calibration or has no positive number,
            a row does not state the configuration that the model needs, or the rows are of fewer
            models than there are constants.
    """
    if not rows:
        raise ConfigError(
            "a fit needs at least one calibration row",
            code="no-calibration-row",
            where=fit.family,
            rule="at least one calibration row",
        )
    for row in rows:
        _check(row)
    try:
        found = fit.fit(rows)
    except CannotPredict as error:
        raise ConfigError(
            "a row cannot be fitted",
            code="row-not-predicted",
            where=fit.family,
            value=error,
            remedy="choose other rows with --row_ids",
        ) from error
    _check_models(fit.family, found, rows)
    return found


def least_squares(
    errors: Callable[[Constants], Sequence[float]], start: Constants, *, loss: Loss = "linear"
) -> Constants:
    """Return the positive constants near ``start`` with the least squares of ``errors``.

    With the loss ``soft_l1`` an error far above ``_SPREAD`` counts as such, not by its square.

    The solver sees each constant as a multiple of its start, so constants of any magnitude can be
    fitted together.
    """
    names, scale = list(start), np.array(list(start.values()))

    def constants(multiples: np.ndarray) -> Constants:
        return dict(zip(names, (multiples * scale).tolist(), strict=True))

    def residuals(multiples: np.ndarray) -> np.ndarray:
        return np.array(errors(constants(multiples)))

    solution = optimize.least_squares(
        residuals,
        np.ones(len(names)),
        jac="3-point",
        bounds=(1e-6, np.inf),
        ftol=_TOLERANCE,
        xtol=_TOLERANCE,
        gtol=_TOLERANCE,
        loss=loss,
        f_scale=_SPREAD,
    )
    return constants(solution.x)


def _check_models(family: str, found: Constants, rows: Sequence[Row]) -> None:
    models = {model_name(row) for row in rows}
    if len(found) > len(models):
        raise ConfigError(
            "a fit must not have more constants than its rows have models",
            code="more-constants-than-models",
            where=family,
            value=f"{counted(len(found), 'constant')} ({', '.join(found)}), "
            f"{counted(len(models), 'model')} ({', '.join(sorted(models))})",
            rule="each constant needs a model of its own",
            remedy="add rows of other models, or call constants assumed and leave them out",
        )


def _check(row: Row) -> None:
    if row.use != "calibration":
        raise ConfigError(
            f"a row to fit must be marked calibration; got {row.use}",
            code="row-not-calibration",
            where=f"{row.place}, field use",
            value=row.use,
            rule="constants are fitted to calibration rows only",
            remedy="leave the row out",
        )
    if isinstance(row.value, str) or row.value <= 0:
        raise ConfigError(
            f"the value of a row to fit must be a positive number; got {row.value}",
            code="value-not-positive",
            where=f"{row.place}, field value",
            value=row.value,
            rule="more than 0",
            remedy="leave the row out",
        )
