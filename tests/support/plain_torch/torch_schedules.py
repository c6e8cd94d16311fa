"""The values of torch's schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def torch_values(
    make: Callable[[torch.optim.Optimizer], Any], initial: float, num_steps: int
) -> list[float]:
    """Return the learning rates of a torch scheduler at steps 0 .. num_steps - 1."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=initial)
    scheduler = make(optimizer)
    values = []
    for _ in range(num_steps):
        values.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return values
