"""Intervals of predictions, from the errors on published rows.

A prediction is right within a factor. How large that is follows from published rows that no
constant was fitted to: the errors of their family, how far each of them lies from the nearest
calibrated row, and how far the prediction does.
"""

from waferstream.machine.intervals.interval import AnyInterval, Interval, Unknown
from waferstream.machine.intervals.residuals import RESIDUALS, Residual, Residuals, interval_of
from waferstream.machine.intervals.setting import Setting, decades_between

__all__ = [
    "RESIDUALS",
    "AnyInterval",
    "Interval",
    "Residual",
    "Residuals",
    "Setting",
    "Unknown",
    "decades_between",
    "interval_of",
]
