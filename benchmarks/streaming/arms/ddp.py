"""``ddpN``: torch's DistributedDataParallel over gloo, N ranks that share the cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.streaming.arms.torch_loop import torch_loop, torch_model
from benchmarks.streaming.workload import Workload

_TIMEOUT = timedelta(minutes=10)


@contextmanager
def open_rank(
    workload: Workload, rank: int, num_ranks: int, meeting_point: Path
) -> Iterator[Callable[[int], None]]:
    """A function that trains a number of steps on this rank's share of every batch.

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
        model = DistributedDataParallel(torch_model(workload), gradient_as_bucket_view=True)
        share = workload.batch_size // num_ranks
        yield torch_loop(model, workload, slice(rank * share, (rank + 1) * share))
    finally:
        distributed.destroy_process_group()
