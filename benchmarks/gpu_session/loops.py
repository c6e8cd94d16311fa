"""Two ways to train on a device: all of it there, or streamed to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from appliance.spec import RuntimeSpec
from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.workload import ADAMW, Workload
from csnode.devices import DeviceName
from csnode.devices.cuda import reproducible
from waferstream.core import tested_torch

Run = Callable[[int], None]
"""Trains a number of steps."""


@contextmanager
def open_in_memory(
    workload: Workload,
    device: DeviceName,
    *,
    is_compiled: bool,
    is_mixed: bool = False,
    limit_bytes: int | None = None,
) -> Iterator[Run]:
    """Keep model and optimizer in bf16 on a device, which is idle at the end of each run.

    Compiled, it is the loop of somebody who knows torch: each block by torch.compile, attention and
    algorithms as torch chooses. Otherwise the kernels are deterministic, as those of a cluster.
    Where it ``is_mixed``, weights, gradients and optimizer state are fp32, as those of a cluster.
    """
    limit_memory(limit_bytes)
    model = workload.model().to(device, None if is_mixed else torch.bfloat16)
    if is_compiled:
        compile_blocks(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
    batches, size = iter(workload.source()), workload.micro_batch_size
    share = size / workload.batch_size

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = {name: rows.to(device) for name, rows in next(batches).items()}
            for start in range(0, workload.batch_size, size):
                part = {name: rows[start : start + size] for name, rows in batch.items()}
                with torch.autocast(device, torch.bfloat16, enabled=is_mixed):
                    loss = model(**part)
                (loss * share).backward()
            optimizer.step()
            optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    if is_compiled:
        yield run
    else:
        with reproducible():
            yield run


def compile_blocks(model: nn.Module, device: DeviceName) -> None:
    """Compile each repeated layer, whose code is made once; the processor runs the traced graph."""
    backend = "inductor" if device == "cuda" else "eager"
    for layers in [m for m in model.modules() if isinstance(m, nn.ModuleList)]:
        for layer in layers:
            layer.compile(backend=backend)


@contextmanager
def open_streamed(
    workload: Workload, runtime: RuntimeSpec, limit_bytes: int | None = None
) -> Iterator[Run]:
    """Stream the training through one system; the limit holds for a cluster in this process."""
    accept_torch()
    limit_memory(limit_bytes)
    with open_cluster(workload, 1, runtime=runtime) as run:
        yield run


def limit_memory(limit_bytes: int | None) -> None:
    """Let torch take at most so many bytes of the GPU in this process."""
    if limit_bytes is not None:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))


def accept_torch() -> None:
    """Let this process train with the release of torch that is there.

    A host with a GPU may have another one than the tested; its bits are its own, and repeat.
    """
    vars(tested_torch)["TORCH"] = torch.__version__.partition("+")[0]
