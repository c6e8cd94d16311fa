"""Ways to train one workload on one host: ``plain``, ``csxN``, ``ddpN``.

Each way opens in processes of its own: a loop that keeps the model in memory (plain), a cstorch
program streamed through N systems on Ray (csxN), or N ranks of torch's DistributedDataParallel over
gloo (ddpN).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from benchmarks.streaming.arm import Opener
from benchmarks.streaming.workload import ADAMW, Workload
from modelzoo.data.registry import build_source
from wsc.core.errors import ConfigError

_NUMBERED = re.compile(r"(csx|ddp)([1-9][0-9]*)")
_TIMEOUT = timedelta(minutes=10)


def openers(name: str, workload: Workload, folder: Path) -> list[Opener]:
    """Return one opener for each process of an arm.

    Args:
        name: ``plain``, ``csxN`` or ``ddpN``.
        workload: Model, data and batch.
        folder: Empty folder for files of the arm.

    Raises:
        ConfigError: There is no such arm, or the workload cannot be divided for it.
    """
    if name == "plain":
        return [partial(open_plain, workload)]
    if (match := _NUMBERED.fullmatch(name)) is None:
        raise ConfigError(
            f"an arm must be plain, csxN or ddpN; got {name}",
            code="unknown-arm",
            value=name,
            rule="plain, csxN or ddpN, N from 1",
        )
    count = int(match[2])
    if match[1] == "csx":
        _check_systems(name, workload, count)
        return [partial(open_cluster, workload, count)]
    _check_ranks(name, workload, count)
    meeting_point = folder / "meeting_point"
    return [partial(open_rank, workload, rank, count, meeting_point) for rank in range(count)]


def _check_systems(name: str, workload: Workload, num_csx: int) -> None:
    num_micro_batches = workload.batch_size // workload.micro_batch_size
    if num_csx > num_micro_batches:
        raise ConfigError(
            f"the number of systems must be at most {num_micro_batches}; got {num_csx}",
            code="more-systems-than-micro-batches",
            where=name,
            value=f"batch {workload.batch_size}, {num_micro_batches} micro-batches",
            rule="every system has a micro-batch to compute",
        )


def _check_ranks(name: str, workload: Workload, num_ranks: int) -> None:
    if workload.batch_size % num_ranks or num_ranks > workload.cores:
        raise ConfigError(
            f"{num_ranks} ranks cannot share the batch or the cores",
            code="ranks-not-divisible",
            where=name,
            value=f"batch {workload.batch_size}, {workload.cores} cores",
            rule="the number of ranks divides the batch and is at most the number of cores",
        )


@contextmanager
def open_plain(workload: Workload) -> Iterator[Callable[[int], None]]:
    """Keep the model in memory, in one process with torch's threads on all cores."""
    torch.set_num_threads(workload.cores)
    yield _torch_loop(_torch_model(workload), workload, slice(None))


@contextmanager
def open_rank(
    workload: Workload, rank: int, num_ranks: int, meeting_point: Path
) -> Iterator[Callable[[int], None]]:
    """Train this rank's part of every batch; the ranks share the cores.

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
    try:
        model = DistributedDataParallel(_torch_model(workload), gradient_as_bucket_view=True)
        share = workload.batch_size // num_ranks
        yield _torch_loop(model, workload, slice(rank * share, (rank + 1) * share))
    finally:
        distributed.destroy_process_group()


@contextmanager
def open_cluster(workload: Workload, num_csx: int) -> Iterator[Callable[[int], None]]:
    """Stream the training through a cluster; of each run of steps only the last loss comes back.

    Ray, the compiled program and the weights come up with the first step.
    """
    torch.set_num_threads(1)  # this process only asks for steps
    cstorch.amp.enable_mixed_precision(workload.precision != "fp32")
    cstorch.backends.csx.precision.optimization_level = 1 if workload.precision == "bf16" else 0
    runtime = RuntimeSpec(kind="ray", cores=workload.cores)
    config = cstorch.ClusterConfig(num_csx=num_csx, cluster=ClusterSpec(runtime=runtime))
    backend = cstorch.backend("CSX", cluster_config=config)
    try:
        with backend.device:
            model = workload.model()
        compiled = cstorch.compile(model, backend)
        optimizer = cstorch.optim.AdamW(model.parameters(), **ADAMW)
        loader = cstorch.utils.data.DataLoader(build_source, workload.loader, "workload")

        @cstorch.trace
        def training_step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = compiled(**batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        def run(steps: int) -> None:
            executor = cstorch.utils.data.DataExecutor(
                loader, num_steps=steps, activation_steps=steps
            )
            for batch in executor:
                training_step(batch)

        yield run
    finally:
        backend.shutdown()


def _torch_model(workload: Workload) -> nn.Module:
    """Return the model with weights in the dtype of the kernels."""
    model = workload.model()
    return model.bfloat16() if workload.precision == "bf16" else model


def _torch_loop(model: nn.Module, workload: Workload, rows: slice) -> Callable[[int], None]:
    """Return a function that trains a number of steps on ``rows`` of every global batch.

    The rows go through forward and backward in one piece, then torch's fused AdamW steps: neither
    micro-batches nor rounding, as one writes the loop without a cluster.
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
