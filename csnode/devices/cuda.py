"""The GPUs that a process sees: their queues and their memory, and what makes their bits repeat."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from csnode.devices.queues import Event, Queues
from waferstream.core.errors import ClusterJobInitError
from waferstream.core.roles.names import node_name

_NS_PER_MS = 1e6


class CudaQueues:
    """The queues of one GPU: streams of CUDA, and page-locked memory of the host.

    Args:
        index: The GPU, of those that this process sees.
    """

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        with torch.cuda.device(self.device):
            self._stream = torch.cuda.Stream()
            self.inward = _CudaQueue(torch.cuda.Stream(), self)
            self.compute = _CudaQueue(self._stream, self)
            self.outward = _CudaQueue(torch.cuda.Stream(), self)
        self.align_clock()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let ops of torch in the block run on the compute queue, with the same bits each time."""
        with torch.cuda.stream(self._stream), reproducible():
            yield

    def host_bytes(self, num_bytes: int) -> torch.Tensor:
        """Return page-locked bytes of the host."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def align_clock(self) -> None:
        """Note when an event of the device was reached on the clock of the host."""
        self.origin = torch.cuda.Event(enable_timing=True)
        self.origin.record(self._stream)
        self.origin.synchronize()
        self.origin_ns = time.perf_counter_ns()


class _CudaQueue:
    def __init__(self, stream: torch.cuda.Stream, queues: CudaQueues) -> None:
        self._stream, self._queues = stream, queues

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def record(self) -> Event:
        # Blocking: whoever waits gives its core to other roles instead of asking over and over.
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(self._stream)
        return _CudaEvent(event, self._queues)

    def wait(self, event: Event) -> None:
        assert isinstance(event, _CudaEvent), "an event of other queues"
        self._stream.wait_event(event.event)


class _CudaEvent:
    def __init__(self, event: torch.cuda.Event, queues: CudaQueues) -> None:
        self.event = event
        self._origin, self._origin_ns = queues.origin, queues.origin_ns

    @property
    def is_done(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()

    @property
    def time_ns(self) -> int:
        elapsed_ms: float = self._origin.elapsed_time(self.event)
        return self._origin_ns + round(elapsed_ms * _NS_PER_MS)


@contextmanager
def reproducible() -> Iterator[None]:
    """Choose deterministic algorithms without TF32 in the block, whatever the process uses.

    A lane enters such a block for every micro-batch.
    """
    # Without, cuBLAS may choose another algorithm in each call (torch, "Reproducibility"); torch
    # reads it at the first product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    deterministic: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,
    )
    settings = _settings()
    values = [getattr(place, name) for place, name, _ in settings]
    # Below torch.use_deterministic_algorithms, which sets up inductor's configuration each time.
    torch._C._set_deterministic_algorithms(True, warn_only=False)
    deterministic.fill_uninitialized_memory = False
    for place, name, value in settings:
        setattr(place, name, value)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])
        deterministic.fill_uninitialized_memory = before[2]
        for (place, name, _), value in zip(settings, values, strict=True):
            setattr(place, name, value)


def _settings() -> list[tuple[Any, str, object]]:
    """Return settings that trade bits for speed, and what they must be: place, name and value.

    TF32 has older and newer names. The older ones set both, but cannot be read in a process that
    has set the newer ones alone.
    """
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    older = [place for place in (cudnn, matmul) if _can_read(place)]
    newer = [cudnn.conv, cudnn.rnn, *([] if matmul in older else [matmul])]
    return [
        *((place, "allow_tf32", False) for place in older),
        *((place, "fp32_precision", "ieee") for place in newer),
        (cudnn, "benchmark", False),
        (cudnn, "deterministic", True),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
    ]


def _can_read(place: Any) -> bool:
    try:
        return place.allow_tf32 in (True, False)
    except RuntimeError:
        return False


def num_gpus() -> int:
    """Return the GPUs that this process sees.

    It does not start CUDA, as ``torch.cuda.is_available`` does: processes that are forked later
    could not use it any more.
    """
    return torch.cuda.device_count()


def queues_of_gpu(node: int) -> Queues:
    """Return the queues of the GPU of a node: the GPUs of a host are taken in turn.

    Raises:
        ClusterJobInitError: This process sees none, or GPUs of several kinds.
    """
    gpus = num_gpus()
    if not gpus:
        raise ClusterJobInitError(
            "the process of a CS node must see a GPU",
            code="no-gpu-in-process",
            where=f"{node_name(node)}, runtime.device: cuda",
            value=f"torch {torch.__version__}, "
            f"CUDA_VISIBLE_DEVICES {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')!r}",
            rule="every host of a system has a GPU, and a torch with CUDA",
            remedy="install such a torch there, unset CUDA_VISIBLE_DEVICES, or set "
            "runtime.device: cpu",
        )
    if len(kinds := {kind_of_gpu(index) for index in range(gpus)}) > 1:
        raise ClusterJobInitError(
            "the GPUs of a host must be of one kind",
            code="gpus-differ",
            where=f"{node_name(node)}, runtime.device: cuda",
            value=", ".join(sorted(kinds)),
            rule="kernels of another kind of GPU add in another order, so the weights would "
            "depend on which system has which GPU",
            remedy="name GPUs of one kind in CUDA_VISIBLE_DEVICES",
        )
    return CudaQueues(node % gpus)


def kind_of_gpu(index: int) -> str:
    """Return the name of a GPU and the number of its multiprocessors, by which kernels differ."""
    properties = torch.cuda.get_device_properties(index)
    return f"{properties.name} with {properties.multi_processor_count} multiprocessors"


def memory_of_gpus() -> list[int]:
    """Return the bytes of each GPU that this process sees."""
    return [torch.cuda.get_device_properties(i).total_memory for i in range(num_gpus())]
