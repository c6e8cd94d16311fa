"""A workload as a cstorch program, whose steps a cluster computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

import cstorch
from benchmarks.streaming.workload import ADAMW, Workload
from waferstream.workload.data import build_source


def training_on(backend: cstorch.Backend, workload: Workload) -> Callable[[int], None]:
    """Return a function that trains so many further steps in one job."""
    with backend.device:
        model = workload.model()
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.AdamW(model.parameters(), **ADAMW)
    # One loader for all jobs: another one would be compiled and installed again.
    loader = cstorch.utils.data.DataLoader(build_source, workload.loader, "workload")

    @cstorch.trace
    def training_step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = compiled(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def run(steps: int) -> None:
        executor = cstorch.utils.data.DataExecutor(loader, num_steps=steps, activation_steps=steps)
        for batch in executor:
            training_step(batch)

    return run
