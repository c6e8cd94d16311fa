"""All replays, in the order of the report: a row belongs to the first family that knows it."""

from __future__ import annotations

from validation.families import gpu, inference, kernels, setup, training
from validation.families.replay import Family, Fit

FAMILIES: tuple[Family, ...] = (
    *kernels.FAMILIES,
    *inference.FAMILIES,
    *training.FAMILIES,
    *setup.FAMILIES,
    *gpu.FAMILIES,
)
FITS: tuple[Fit, ...] = (*kernels.FITS, *inference.FITS, *training.FITS, *setup.FITS, *gpu.FITS)
