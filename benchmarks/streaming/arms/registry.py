"""Arms by name: ``plain``, ``csx1``, ``csx2``, ..., ``ddp2``, ``ddp3``, ..."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from benchmarks.streaming.arm import Opener
from benchmarks.streaming.arms.cluster import open_cluster
from benchmarks.streaming.arms.ddp import open_rank
from benchmarks.streaming.arms.plain import open_plain
from benchmarks.streaming.workload import Workload
from wsc.core.errors import ConfigError

_NUMBERED = re.compile(r"(csx|ddp)([1-9][0-9]*)")


def openers(name: str, workload: Workload, folder: Path) -> list[Opener]:
    """One opener for each process of an arm; ``folder`` is empty, for files of the arm's own.

    Raises ConfigError if there is no such arm, or the workload cannot be cut for it.
    """
    if name == "plain":
        return [partial(open_plain, workload)]
    if (match := _NUMBERED.fullmatch(name)) is None:
        raise ConfigError("no such arm", value=name, rule="plain, csxN or ddpN, N from 1")
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
            "more systems than micro-batches",
            where=name,
            value=f"batch {workload.batch_size}, {num_micro_batches} micro-batches",
            rule="every system has a micro-batch to compute",
        )


def _check_ranks(name: str, workload: Workload, num_ranks: int) -> None:
    if workload.batch_size % num_ranks or num_ranks > workload.cores:
        raise ConfigError(
            "the batch or the cores cannot be shared by so many ranks",
            where=name,
            value=f"batch {workload.batch_size}, {workload.cores} cores",
            rule="the number of ranks divides the batch and is at most the number of cores",
        )
