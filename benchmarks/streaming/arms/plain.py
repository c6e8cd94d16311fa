"""``plain``: the model in memory, one process, torch's threads on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmarks.streaming.arms.torch_loop import torch_loop, torch_model
from benchmarks.streaming.workload import Workload


@contextmanager
def open_plain(workload: Workload) -> Iterator[Callable[[int], None]]:
    """A function that trains a number of steps."""
    torch.set_num_threads(workload.cores)
    yield torch_loop(torch_model(workload), workload, slice(None))
