"""All ablations, by part of the model."""

from __future__ import annotations

from validation.ablations import gpu, hosts, training
from validation.ablations.ablation import Ablation

ABLATIONS: tuple[Ablation, ...] = (*training.ABLATIONS, *hosts.ABLATIONS, *gpu.ABLATIONS)
