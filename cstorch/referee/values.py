"""What a step leaves behind, as far as a user sees it: its loss, and the model's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

COUNTER = "num_batches_tracked"
"""The buffer in which a batch norm counts: batches in a plain loop, micro-batches in a run."""


@dataclass(frozen=True)
class StepValues:
    """The loss of a step, and weights and buffers after it, by name."""

    loss: float
    state: Mapping[str, torch.Tensor]


def copy_of(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a copy of a model's state, without the counters of its batch norms."""
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in state.items()
        if not name.endswith(COUNTER)
    }
