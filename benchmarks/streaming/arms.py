"""Ways to train one workload on one host, by name.

Each way opens in processes of its own: a loop that keeps the model in memory (``plain``: the whole
batch at once; ``best``: in the layout that was measured to be the fastest; ``mixed``: in that
layout, in mixed precision; ``compiled``: in that layout, under torch.compile), a cstorch program
streamed through N systems on Ray (``csxN``; ``csxNmS``: with micro-batches of S samples;
``csxNcK`` on K cores; ``csxNcompiled``: with compiled kernels), or N ranks over gloo:
DistributedDataParallel (``ddpN``; ``ddpNmixed``: in mixed precision; ``ddpNcompiled``: under
torch.compile), FSDP2 (``fsdpN``, ``fsdpNmixed``, ``fsdpNcompiled``) or DeepSpeed's ZeRO-3
(``zeroN``). In mixed precision weights, gradients and optimizer state are fp32 and kernels bf16, as
in a cluster whose workload is in bf16.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from benchmarks.streaming.arm import Opener
from benchmarks.streaming.cluster_training import training_on
from benchmarks.streaming.torch_loops import (
    Run,
    open_ddp,
    open_deepspeed,
    open_fsdp,
    open_memory,
)
from benchmarks.streaming.workload import Layout, Workload
from csnode.engine.spec import EngineSpec, KernelCode
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import Cut

_NUMBER = "([1-9][0-9]*)"
_RANKS = re.compile(f"(ddp|fsdp|zero){_NUMBER}(mixed|compiled)?")
_SYSTEMS = re.compile(f"csx{_NUMBER}(?:m{_NUMBER})?(?:c{_NUMBER})?(compiled)?")
_OF_RANKS: Mapping[tuple[str, str | None], Callable[..., AbstractContextManager[Run]]] = {
    ("ddp", None): open_ddp,
    ("ddp", "mixed"): partial(open_ddp, is_mixed=True),
    ("ddp", "compiled"): partial(open_ddp, is_compiled=True),
    ("fsdp", None): open_fsdp,
    ("fsdp", "mixed"): partial(open_fsdp, is_mixed=True),
    ("fsdp", "compiled"): partial(open_fsdp, is_compiled=True),
    ("zero", None): open_deepspeed,
}
"""The ways of ranks, by their name and how they compute."""
_RULE = (
    "plain, best, mixed, compiled, csxN[mS][cK][compiled], ddpN[mixed|compiled], "
    "fsdpN[mixed|compiled] or zeroN, numbers from 1"
)


def openers(
    name: str, workload: Workload, folder: Path, best: Layout | None = None
) -> list[Opener]:
    """Return one opener for each process of an arm.

    Args:
        name: The name of the arm.
        workload: Model, data and batch.
        folder: Empty folder for files of the arm.
        best: The fastest layout of a loop in memory; by default the whole batch at once.

    Raises:
        ConfigError: There is no such arm, or the workload cannot be divided for it.
    """
    whole = Layout(workload.batch_size)
    if name in ("plain", "best", "mixed", "compiled"):
        layout = whole if name == "plain" or best is None else best
        ways = {"is_mixed": name == "mixed", "is_compiled": name == "compiled"}
        return [partial(open_memory, workload, layout, **ways)]
    if systems := _SYSTEMS.fullmatch(name):
        num_csx, size, cores = (
            None if number is None else int(number) for number in systems.groups()[:3]
        )
        assert num_csx is not None
        kernels: KernelCode = "compiled" if systems[4] else "eager"
        workload = replace(
            workload, micro_batch=size, cores=cores or workload.cores, kernels=kernels
        )
        _check_systems(name, workload, num_csx)
        return [partial(open_cluster, workload, num_csx)]
    match = _RANKS.fullmatch(name)
    way = None if match is None else _OF_RANKS.get((match[1], match[3]))
    if match is None or way is None:
        raise ConfigError(
            f"an arm must be {_RULE}; got {name}",
            code="unknown-arm",
            value=name,
            rule=_RULE,
        )
    count = int(match[2])
    _check_ranks(name, workload, count)
    meeting_point = folder / "meeting_point"
    return [partial(way, workload, rank, count, meeting_point) for rank in range(count)]


def _check_systems(name: str, workload: Workload, num_csx: int) -> None:
    num_micro_batches = Cut.of(workload.batch_size, workload.micro_batch_size).num_micro_batches
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
def open_cluster(
    workload: Workload,
    num_csx: int,
    trace: Path | None = None,
    runtime: RuntimeSpec | None = None,
) -> Iterator[Callable[[int], None]]:
    """Stream the training through a cluster; of each run of steps only the last loss comes back.

    In the end all activities are written to ``trace``. See ``open_backend``.
    """
    with open_backend(workload, num_csx, runtime, is_recorded=trace is not None) as backend:
        yield training_on(backend, workload)
        if trace is not None:
            backend.write_trace(trace)


@contextmanager
def open_backend(
    workload: Workload,
    num_csx: int,
    runtime: RuntimeSpec | None = None,
    *,
    is_recorded: bool = False,
) -> Iterator[cstorch.Backend]:
    """Yield the backend of a cluster, set up for the workload.

    Ray, the compiled program and the weights come up with the first step. ``runtime`` says where
    the roles run, by default on this host with the cores of the workload.
    """
    torch.set_num_threads(1)  # this process only asks for steps
    cstorch.amp.enable_mixed_precision(workload.precision != "fp32")
    cstorch.backends.csx.precision.optimization_level = 1 if workload.precision == "bf16" else 0
    cstorch.backends.csx.performance.micro_batch_size = workload.micro_batch or "auto"
    engine = EngineSpec(kernels=workload.kernels)
    runtime = runtime or RuntimeSpec(kind="ray", cores=workload.cores, engine=engine)
    config = cstorch.ClusterConfig(
        num_csx=num_csx, cluster=ClusterSpec(runtime=runtime), record=is_recorded
    )
    backend = cstorch.backend("CSX", cluster_config=config)
    try:
        yield backend
    finally:
        backend.shutdown()
