"""All benchmark families, in the order of the report: the first that knows a row predicts it."""

from __future__ import annotations

from validation.families import (
    adaptation,
    gpu,
    inference,
    kernels,
    micro_batches,
    readers,
    service,
    sparse,
    start_up,
    training,
)
from validation.families.prediction import Family

FAMILIES: tuple[Family, ...] = (
    *kernels.FAMILIES,
    *inference.FAMILIES,
    *service.FAMILIES,
    *sparse.FAMILIES,
    *readers.FAMILIES,
    *training.FAMILIES,
    *adaptation.FAMILIES,
    *micro_batches.FAMILIES,
    *start_up.FAMILIES,
    *gpu.FAMILIES,
)
