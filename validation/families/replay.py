"""What a replay module offers to the report and to the fit.

A replay module exports ``FAMILIES: tuple[Family, ...]``, and ``FITS: tuple[Fit, ...]`` if it has
fitted constants; ``registry`` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from validation.rows.row import Row


class CannotReplay(Exception):
    """The reason why a row cannot be predicted, for the report."""


@dataclass(frozen=True)
class Family:
    """Rows that one model predicts.

    Both functions get ``Row.described()``: what was run, without what came out.
    """

    name: str
    """As it stands in the report: ``collectives``, ``GEMV``, ``training CS-2``, ...

    Several may share a name: rows that the report counts together, predicted in several ways.
    """
    knows: Callable[[Row], bool]
    """Whether a row belongs to the family."""
    predict: Callable[[Row], float]
    """The prediction in the row's own unit; raises CannotReplay with the reason."""


@dataclass(frozen=True)
class Fit:
    """How the constants of a family follow from its calibration rows."""

    family: str
    fit: Callable[[Sequence[Row]], dict[str, float]]
    """Constants by name, from rows with their values: calibration rows alone, all with a number.

    Raises CannotReplay if a row leaves too much unsaid.
    """
