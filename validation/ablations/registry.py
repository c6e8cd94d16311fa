"""All ablations, by part of the model."""

from __future__ import annotations

from validation.ablations import gpu, training
from validation.ablations.ablation import Ablation

ABLATIONS: tuple[Ablation, ...] = (*training.ABLATIONS, *gpu.ABLATIONS)
