"""The training loop that one writes without a cluster, shared by the arms that do not stream."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.streaming.workload import ADAMW, Workload


def torch_model(workload: Workload) -> nn.Module:
    """The model as it trains in memory: weights in the dtype that the kernels compute in."""
    model = workload.model()
    return model.bfloat16() if workload.precision == "bf16" else model


def torch_loop(model: nn.Module, workload: Workload, rows: slice) -> Callable[[int], None]:
    """A function that trains a number of steps on ``rows`` of every global batch.

    The rows go through forward and backward in one piece, then torch's fused AdamW steps: no
    micro-batches, no rounding, nothing that the loop would not do for its own sake.
    """
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
    batches = iter(workload.source())

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = next(batches)
            loss = model(**{name: tensor[rows] for name, tensor in batch.items()})
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return run
