"""All fits, each of one family of rows."""

from __future__ import annotations

from validation.fit import gpu, inference, kernels, start_up, training
from validation.fit.calibration import Fit

FITS: tuple[Fit, ...] = (
    *kernels.FITS,
    *inference.FITS,
    *training.FITS,
    *start_up.FITS,
    *gpu.FITS,
)
