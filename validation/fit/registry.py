"""All fits, each of one family of rows."""

from __future__ import annotations

from validation.fit import gpu, start_up, training
from validation.fit.calibration import Fit

FITS: tuple[Fit, ...] = (
    *training.FITS,
    *start_up.FITS,
    *gpu.FITS,
)
