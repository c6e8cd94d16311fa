"""All benchmark families, in the order of the report: the first that knows a row predicts it."""

from __future__ import annotations

from validation.families import gpu, inference, kernels, service, sparse, start_up, training
from validation.families.prediction import Family

FAMILIES: tuple[Family, ...] = (
    *kernels.FAMILIES,
    *inference.FAMILIES,
    *service.FAMILIES,
    *sparse.FAMILIES,
    *training.FAMILIES,
    *start_up.FAMILIES,
    *gpu.FAMILIES,
)
