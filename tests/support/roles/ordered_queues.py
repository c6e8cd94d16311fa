"""Queues of a device that find races: accesses to memory that no event orders.

The device is the processor, and all work runs at once. What is checked is not values but order, by
vector clocks (Mattern 1989): each queue, and the host, counts its accesses and knows those of the
others that are over. Enqueued work knows what the host knows; events carry what a queue knows.
Two accesses to the same bytes, one of which writes, must be ordered. So must the end of a tensor
and what queues did with it, since torch's allocator gives its memory to later kernels at once.

Every op of torch in the block of ``watching`` is an access of the host, or of the compute queue in
``computing``. Ops that return a number to the host wait for the queue, as they do on CUDA.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from csnode.devices.queues import Event

HOST, INWARD, COMPUTE, OUTWARD = range(4)
NAMES = ("host", "inward", "compute", "outward")
_ATEN = torch.ops.aten
_WAITING = (_ATEN._local_scalar_dense.default, _ATEN.item.default, _ATEN.equal.default)


class Race(AssertionError):
    """Two accesses to the same bytes that no event orders."""


class Access(NamedTuple):
    """One access: who, its number there, which bytes, and whether they change."""

    agent: int
    number: int
    start: int
    stop: int
    writes: bool


class OrderedEvent:
    """A point in a queue and what is over there; the host learns it when it waits or asks."""

    def __init__(self, queues: OrderedQueues, known: list[int]) -> None:
        self.known = known
        self.time_ns = time.perf_counter_ns()
        self._queues = queues
        self._is_awaited = False

    @property
    def is_done(self) -> bool:
        """Whether the host has waited for it; with ``early`` queues, always."""
        if self._queues.early:
            self.wait()
        return self._is_awaited

    def wait(self) -> None:
        """Let the host know what is over."""
        self._queues.learn(HOST, self.known)
        self._is_awaited = True


class OrderedQueue:
    """Work in order."""

    def __init__(self, queues: OrderedQueues, agent: int) -> None:
        self._queues, self._agent = queues, agent

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy now; neither may be in use."""
        with self._queues.acting(self._agent):
            target.copy_(source)

    def record(self) -> Event:
        """Return the point behind all work so far."""
        known = self._queues.known
        self._queues.learn(self._agent, known[HOST])
        return OrderedEvent(self._queues, list(known[self._agent]))

    def wait(self, event: Event) -> None:
        """Know what is over at an event."""
        assert isinstance(event, OrderedEvent)
        self._queues.learn(self._agent, event.known)


class OrderedQueues:
    """Queues on the processor that raise ``Race``.

    Args:
        early: Whether an event is done as soon as the host asks; otherwise when it has waited.
        deaf: An agent that learns nothing from events, to see that the check finds it.
    """

    device = torch.device("cpu")

    def __init__(self, *, early: bool = False, deaf: int | None = None) -> None:
        self.early = early
        self.known = [[0] * len(NAMES) for _ in NAMES]
        self._deaf = deaf
        self._agent = HOST
        self._accesses: dict[int, list[Access]] = {}  # by storage
        self._held: dict[int, torch.UntypedStorage] = {}  # so that no address is used twice
        self.inward = OrderedQueue(self, INWARD)
        self.compute = OrderedQueue(self, COMPUTE)
        self.outward = OrderedQueue(self, OUTWARD)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check all ops in the block."""
        with _Watch(self):
            yield

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let ops be those of the compute queue."""
        with self.acting(COMPUTE):
            yield

    def host_bytes(self, num_bytes: int) -> torch.Tensor:
        """Return bytes of the host."""
        return torch.zeros(num_bytes, dtype=torch.uint8)

    def align_clock(self) -> None:
        """Do nothing: both clocks are one."""

    @contextmanager
    def acting(self, agent: int) -> Iterator[None]:
        """Let ops in the block be work of an agent, which the host enqueues."""
        before, self._agent = self._agent, agent
        try:
            yield
        finally:
            self._agent = before

    def learn(self, agent: int, known: list[int]) -> None:
        """Let an agent know what is over."""
        if agent != self._deaf or known is self.known[HOST]:
            ours = self.known[agent]
            ours[:] = map(max, ours, known)

    def host_waits(self) -> None:
        """Let the host know what the running queue has done, as where it reads a number."""
        self.learn(HOST, self.known[self._agent])

    def access(self, tensor: torch.Tensor, *, writes: bool) -> None:
        """Note that the acting agent reads or writes a tensor.

        Raises:
            Race: An access to the same bytes may still go on.
        """
        if not tensor.numel():
            return
        agent, storage = self._agent, tensor.untyped_storage()
        self.learn(agent, self.known[HOST])
        self.known[agent][agent] += 1
        start = int(tensor.storage_offset()) * tensor.element_size()
        span = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        stop = start + (span + 1) * tensor.element_size()
        now = Access(agent, self.known[agent][agent], start, stop, writes)
        key = storage.data_ptr()
        self._held.setdefault(key, storage)
        earlier = self._accesses.setdefault(key, [])
        for each in earlier:
            overlaps = each.start < stop and start < each.stop
            if overlaps and (writes or each.writes) and not self._knows(agent, each):
                raise Race(f"{NAMES[agent]} ({now}) beside {NAMES[each.agent]} ({each})")
        same = (agent, start, stop, writes)
        earlier[:] = [e for e in earlier if (e.agent, e.start, e.stop, e.writes) != same] + [now]

    def allocate(self, made: torch.Tensor) -> None:
        """Note that a kernel has got new memory: that of any tensor which has ended, or old one."""
        self.learn(self._agent, self.known[HOST])
        for key, storage in list(self._held.items()):
            if torch._C._storage_Use_Count(storage._cdata) > 1:
                continue
            for each in self._accesses.pop(key, ()):
                if each.agent in (INWARD, OUTWARD) and not self._knows(self._agent, each):
                    raise Race(f"memory has ended while {NAMES[each.agent]} uses it ({each})")
            del self._held[key]
        self.access(made, writes=True)

    def _knows(self, agent: int, access: Access) -> bool:
        return self.known[agent][access.agent] >= access.number


class _Watch(TorchDispatchMode):
    """Notes what ops read and write."""

    def __init__(self, queues: OrderedQueues) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._queues = queues

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an op."""
        kwargs = kwargs or {}
        queues = self._queues
        if func.is_view:
            return func(*args, **kwargs)
        arguments = func._schema.arguments
        given = [*zip(arguments, args, strict=False)]
        given += [(a, kwargs[a.name]) for a in arguments if a.name in kwargs]
        known = set()
        for argument, value in given:
            writes = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(value):
                known.add(tensor.untyped_storage().data_ptr())
                queues.access(tensor, writes=writes)
        found = func(*args, **kwargs)
        for tensor in _tensors(found):
            if tensor.untyped_storage().data_ptr() not in known:
                queues.allocate(tensor)
        if func in _WAITING or _copies_to_host(func, kwargs):
            queues.host_waits()
        return found


def _copies_to_host(func: Any, kwargs: Any) -> bool:
    """Return whether an op is ``to("cpu", copy=True)``."""
    return func is _ATEN._to_copy.default and str(kwargs.get("device")) == "cpu"


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
