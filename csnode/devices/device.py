"""Where the kernels of a CS node compute: the processor itself, or a device beside it.

Both run the same schedule on the same executor. On the processor weights are views of the slabs in
which they have arrived, and gradients are summed in the slabs that leave. A device beside it has
memory of its own, so both are *staged* (csnode.devices.staging): copied while kernels run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol

import torch

from csnode.devices import DeviceName
from csnode.devices.cuda import queues_of_gpu
from csnode.devices.queues import Queues
from csnode.devices.staging import DeviceMemory, GradientsOut, WeightsIn
from csnode.gradients import GradientSum, GradientSums, SlabMemory, SumMemory
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages.partial_sum import Operands, one_by_one
from waferstream.core.messages.payload import Payload
from waferstream.core.roles.role import RoleContext


class Mark(Protocol):
    """A moment in the work of a device; ``time_ns`` is asked once the work is done."""

    @property
    def time_ns(self) -> int:
        """The moment (``time.perf_counter_ns`` clock)."""


class Departure(Protocol):
    """The sums of gradients of one segment on their way into slabs."""

    @property
    def is_done(self) -> bool:
        """Whether the device has computed and copied all of it."""

    def wait(self) -> None:
        """Return when the device has computed and copied all of it."""

    def arrive(self) -> dict[int, list[GradientSum]]:
        """Return the sums in slabs, by the node that owns them."""


class Device(Protocol):
    """Where kernels compute.

    ``is_staged`` says whether weights are copied: their slabs are not read after ``place``, and
    kernels of a segment may still run when its micro-batches have passed their lane.
    """

    torch_device: torch.device
    is_staged: bool
    memory: SumMemory

    def begin(self) -> None:
        """Begin a job."""

    def computing(self) -> AbstractContextManager[None]:
        """Let ops of torch in the block run on this device."""

    def hold(self, values: torch.Tensor) -> torch.Tensor:
        """Return an input of kernels as they read it."""

    def place(self, payloads: Mapping[int, Payload]) -> Mapping[int, Payload]:
        """Return the weights of the next segment as its kernels read them."""

    def mark(self) -> Mark:
        """Return the moment at which the work so far is done."""

    def depart(self, sums: Mapping[int, GradientSums]) -> Departure:
        """Send the sums of the segment that was placed last; its lanes have got their work."""


class Host:
    """The processor: nothing is copied, and what has returned is done."""

    torch_device = torch.device("cpu")
    is_staged = False

    def __init__(self, context: RoleContext) -> None:
        self._cores = context.cores
        self.memory: SumMemory = SlabMemory(context.arena)

    def begin(self) -> None:
        """Do nothing."""

    def computing(self) -> AbstractContextManager[None]:
        """Return a context of nothing."""
        return nullcontext()

    def hold(self, values: torch.Tensor) -> torch.Tensor:
        """Return the input itself."""
        return values

    def place(self, payloads: Mapping[int, Payload]) -> Mapping[int, Payload]:
        """Return the payloads themselves."""
        return payloads

    def mark(self) -> Mark:
        """Return this moment."""
        return _Moment(time.perf_counter_ns())

    def depart(self, sums: Mapping[int, GradientSums]) -> Departure:
        """Return the sums as the lanes will have left them."""
        return _InSlabs(sums, self._for_each)

    def _for_each(self, act: Callable[..., object], operands: Operands) -> None:
        """Act on the tensors of a bucket while a core is held."""
        with self._cores.lease():
            one_by_one(act, operands)


class _Moment(NamedTuple):
    time_ns: int


class _InSlabs(NamedTuple):
    """Sums that the lanes gather in slabs."""

    sums: Mapping[int, GradientSums]
    for_each: Callable[[Callable[..., object], Operands], None]

    @property
    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def arrive(self) -> dict[int, list[GradientSum]]:
        return {owner: of_owner.take(self.for_each) for owner, of_owner in self.sums.items()}


class Staged:
    """A device with memory of its own, behind queues of work.

    The processor copies weights into page-locked memory, from which the device takes them, and
    holds a core meanwhile.
    """

    is_staged = True

    def __init__(self, queues: Queues, context: RoleContext) -> None:
        self.torch_device = queues.device
        self._queues, self._cores = queues, context.cores
        self.memory: SumMemory = DeviceMemory(queues.device)
        self._weights = WeightsIn(queues)
        self._gradients = GradientsOut(queues, SlabMemory(context.arena), context.cores)

    def begin(self) -> None:
        """Align the clocks of device and host."""
        self._queues.align_clock()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let ops of torch in the block run on the compute queue."""
        with self._enough_memory(), self._queues.computing():
            yield

    def hold(self, values: torch.Tensor) -> torch.Tensor:
        """Return the input in the memory of the device."""
        with self.computing():
            return values.to(self.torch_device)

    def place(self, payloads: Mapping[int, Payload]) -> Mapping[int, Payload]:
        """Begin to copy the weights of a segment; return them as its kernels will read them."""
        with self._cores.lease(), self._enough_memory():
            return self._weights.place(payloads)

    def mark(self) -> Mark:
        """Return the point behind all kernels so far."""
        return self._queues.compute.record()

    def depart(self, sums: Mapping[int, GradientSums]) -> Departure:
        """Begin to copy the sums of a segment behind its kernels."""
        self._weights.note_read()
        with self._cores.lease(), self.computing():
            taken = {owner: of_owner.take(one_by_one) for owner, of_owner in sums.items()}
        return self._gradients.depart(taken)

    @contextmanager
    def _enough_memory(self) -> Iterator[None]:
        """Raise ApplianceResourceExhausted if the memory of the device does not suffice."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise gpu_memory_exhausted(str(self.torch_device), error) from error


def gpu_memory_exhausted(where: str, error: torch.OutOfMemoryError) -> ApplianceResourceExhausted:
    """Return the error for a GPU on which an allocation failed."""
    return ApplianceResourceExhausted(
        "a GPU has too little memory for its systems",
        code="gpu-memory-exhausted",
        where=where,
        value=str(error).partition(". ")[0],
        rule="a GPU holds activations, and the weights of two segments for each system",
        remedy="lower runtime.activation_memory or csx.performance.micro_batch_size, or let "
        "fewer systems share the GPU",
    )


def device_of(name: DeviceName, node: int, context: RoleContext) -> Device:
    """Return where the kernels of a node compute."""
    return Host(context) if name == "cpu" else Staged(queues_of_gpu(node), context)
