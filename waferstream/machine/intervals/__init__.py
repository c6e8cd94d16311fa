"""Intervals of predictions, from the errors on published rows.

A prediction is right within a factor. How large that is follows from published rows that no
constant was fitted to: the errors of their family, how far each of them lies from the nearest
calibrated row, and how far the prediction does.
"""

from waferstream.machine.intervals.interval import SHARES, AnyInterval, Interval, Share, Unknown
from waferstream.machine.intervals.residuals import RESIDUALS, Residual, Residuals, interval_of
from waferstream.machine.intervals.setting import Setting, decades_between
from waferstream.machine.intervals.steps import start_up_interval, step_interval

__all__ = [
    "RESIDUALS",
    "SHARES",
    "AnyInterval",
    "Interval",
    "Residual",
    "Residuals",
    "Setting",
    "Share",
    "Unknown",
    "decades_between",
    "interval_of",
    "start_up_interval",
    "step_interval",
]
