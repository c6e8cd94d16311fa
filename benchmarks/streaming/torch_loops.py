"""Training without streaming: in memory, by DistributedDataParallel, FSDP2 or DeepSpeed ZeRO-3.

Every arm computes with the dtype of the workload and steps with torch's fused AdamW (DeepSpeed: the
AdamW that it builds), as its users would set it up on a CPU. Weights, gradients and optimizer state
have that dtype, too; where ``is_mixed``, they are fp32, as those of a cluster, and bf16 is for
computing alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.streaming.workload import ADAMW, Layout, Workload

_TIMEOUT = timedelta(minutes=10)
_AS_IT_IS = MixedPrecisionPolicy()
Run = Callable[[int], None]
"""Trains a number of steps."""


@contextmanager
def open_memory(
    workload: Workload, layout: Layout, *, is_mixed: bool = False, is_compiled: bool = False
) -> Iterator[Run]:
    """Keep the model in memory, in one process that uses all cores.

    Where ``is_compiled``, torch.compile compiles the whole forward pass.
    """
    torch.set_num_threads(1 if layout.lanes > 1 else workload.cores)
    model = _model(workload, is_mixed)
    if is_compiled:
        model.compile(dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
    share = layout.micro_batch_size / workload.batch_size

    def forward_backward(micro_batch: Mapping[str, torch.Tensor]) -> None:
        with _autocast(is_mixed):
            loss = model(**micro_batch)
        (loss * share).backward()

    with ExitStack() as threads:
        side_by_side: Callable[..., Any] = map
        if layout.lanes > 1:
            pool = ThreadPoolExecutor(layout.lanes, "lane", torch.set_num_threads, (1,))
            side_by_side = threads.enter_context(pool).map

        def train(batch: Mapping[str, torch.Tensor]) -> None:
            size = layout.micro_batch_size
            parts = [
                {name: rows[start : start + size] for name, rows in batch.items()}
                for start in range(0, workload.batch_size, size)
            ]
            list(side_by_side(forward_backward, parts))
            torch.set_num_threads(workload.cores)  # the update has all cores
            optimizer.step()
            optimizer.zero_grad()

        yield _loop(train, workload)


@contextmanager
def open_ddp(
    workload: Workload,
    rank: int,
    num_ranks: int,
    meeting_point: Path,
    *,
    is_mixed: bool = False,
    is_compiled: bool = False,
) -> Iterator[Run]:
    """Train this rank's part of every batch; every rank has the whole model.

    Where ``is_compiled``, torch.compile compiles it, in pieces that end where buckets do.
    """
    with _ranks(workload, rank, num_ranks, meeting_point):
        model = DistributedDataParallel(_model(workload, is_mixed), gradient_as_bucket_view=True)
        if is_compiled:
            model.compile(dynamic=False)
        yield _rank_loop(model, workload, rank, num_ranks, autocasts=is_mixed)


@contextmanager
def open_fsdp(
    workload: Workload,
    rank: int,
    num_ranks: int,
    meeting_point: Path,
    *,
    is_mixed: bool = False,
    is_compiled: bool = False,
) -> Iterator[Run]:
    """Train this rank's part of every batch; every rank keeps a part of every layer (FSDP2).

    Where ``is_mixed``, it gathers weights in bf16 and reduces gradients in fp32, as torchtitan does
    by default (its ``mixed_precision_param`` and ``mixed_precision_reduce``). Where
    ``is_compiled``, torch.compile compiles each layer, as there.
    """
    with _ranks(workload, rank, num_ranks, meeting_point):
        mesh = init_device_mesh("cpu", (num_ranks,))
        model = _model(workload, is_mixed)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else _AS_IT_IS
        for layers in [m for m in model.modules() if isinstance(m, nn.ModuleList)]:
            for layer in layers:
                if is_compiled:
                    layer.compile(dynamic=False)
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        yield _rank_loop(model, workload, rank, num_ranks)


@contextmanager
def open_deepspeed(
    workload: Workload, rank: int, num_ranks: int, meeting_point: Path
) -> Iterator[Run]:
    """Train this rank's part of every batch with ZeRO-3, where DeepSpeed is installed."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(rank), "LOCAL_SIZE": str(num_ranks)}
    deepspeed = import_module("deepspeed")  # no dependency of the project

    with _ranks(workload, rank, num_ranks, meeting_point):
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        share = workload.batch_size // num_ranks
        config = {
            "train_batch_size": workload.batch_size,
            "train_micro_batch_size_per_gpu": share,
            "zero_optimization": {"stage": 3},
            "optimizer": {"type": "AdamW", "params": {**ADAMW, "torch_adam": True}},
            "bf16": {"enabled": workload.precision == "bf16"},
        }
        model = _model(workload)
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )
        rows = slice(rank * share, (rank + 1) * share)

        def train(batch: Mapping[str, torch.Tensor]) -> None:
            engine.backward(engine(**{name: tensor[rows] for name, tensor in batch.items()}))
            engine.step()

        yield _loop(train, workload)


_GROUPS: list[object] = []
"""The groups of this process, until it ends. With the last holder of one, torch joins the threads
of gloo and keeps the GIL: a thread that still drops its last work would wait for that for ever.
"""


@contextmanager
def _ranks(workload: Workload, rank: int, num_ranks: int, meeting_point: Path) -> Iterator[None]:
    """Join the group of ranks, which share the cores.

    ``meeting_point`` is a file in an empty folder, through which the ranks find each other.
    """
    torch.set_num_threads(max(1, workload.cores // num_ranks))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting_point}",
        rank=rank,
        world_size=num_ranks,
        timeout=_TIMEOUT,
    )
    _GROUPS.append(distributed.group.WORLD)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _rank_loop(
    model: nn.Module, workload: Workload, rank: int, num_ranks: int, *, autocasts: bool = False
) -> Run:
    """Return a function that trains on one rank's rows of every batch, in one piece."""
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
    share = workload.batch_size // num_ranks
    rows = slice(rank * share, (rank + 1) * share)

    def train(batch: Mapping[str, torch.Tensor]) -> None:
        with _autocast(autocasts):
            loss = model(**{name: tensor[rows] for name, tensor in batch.items()})
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return _loop(train, workload)


def _loop(train: Callable[[Mapping[str, torch.Tensor]], None], workload: Workload) -> Run:
    """Return a function that trains a number of steps, on the next batches."""
    batches = iter(workload.source())

    def run(steps: int) -> None:
        for _ in range(steps):
            train(next(batches))

    return run


def _model(workload: Workload, is_mixed: bool = False) -> nn.Module:
    """Return the model with weights in the dtype of the kernels, or in fp32."""
    model = workload.model()
    return model.bfloat16() if workload.precision == "bf16" and not is_mixed else model


def _autocast(is_on: bool) -> torch.autocast:
    """Return a block in which torch computes in bf16, if it is on."""
    return torch.autocast("cpu", torch.bfloat16, enabled=is_on)
