"""Copies between slabs and a device: in whatever order they end, each reads what it should."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from appliance.placement.cores import UnlimitedCores
from csnode.devices.queues import Queues
from csnode.devices.staging import DeviceMemory, GradientsOut, Leaving, WeightsIn
from csnode.gradients import GradientSum, SlabMemory
from csnode.lanes import single_threaded
from tests.support.programs.small_programs import program
from tests.support.roles.arenas import StrictArena
from tests.support.roles.deferred_queues import DeferredQueues
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.program.stream_plan import plan_streams

BUCKET = plan_streams(program(), 1).gradients[-1]
ORDERS = st.builds(random.Random, st.integers(0, 2**32 - 1))


def run_some(queues: DeferredQueues, order: random.Random) -> None:
    """Let queues go on, in a random order and for a random time."""
    for _ in range(order.randrange(4)):
        ready = [queue for queue in queues.all if queue.may_go_on]
        if ready:
            order.choice(ready).run_next()


def run_all(queues: DeferredQueues) -> None:
    for queue in queues.all:
        queue.run_all()


SIZES = st.lists(st.sampled_from([8, 70]), max_size=2)


@given(st.lists(SIZES, min_size=5, max_size=9), ORDERS)
def test_kernels_read_the_weights_of_their_segment(
    sizes: list[list[int]], order: random.Random
) -> None:
    """A slab is freed at once, and no buffer is overwritten before its readers have ended."""
    queues, arena = DeferredQueues(), StrictArena()
    weights, read, sent = WeightsIn(queues), [], []
    for segment, counts in enumerate(sizes):
        slabs = [arena.allocate(4 * count) for count in counts]
        for index, slab in enumerate(slabs):
            slab.view(torch.float32).fill_(10 * segment + index)
        placed = weights.place(dict(enumerate(slabs)))
        for index, slab in enumerate(slabs):
            sent.append(slab.view(torch.float32).clone())
            read.append(torch.empty_like(sent[-1]))
            slab.free()
            run_some(queues, order)
            queues.compute.copy(read[-1], placed[index].view(torch.float32))
        weights.note_read()
        run_some(queues, order)
    run_all(queues)
    assert all(map(torch.equal, read, sent))
    largest = max(sum(-(-4 * count // 256) * 256 for count in counts) for counts in sizes)
    assert weights.held_bytes <= 2 * largest


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), ORDERS)
def test_sums_arrive_as_the_kernels_left_them(counts: list[int], order: random.Random) -> None:
    """Two segments are on their way at a time, and slabs that were released are not written."""
    queues, arena = DeferredQueues(), StrictArena()
    way = GradientsOut(queues, SlabMemory(arena), UnlimitedCores())
    on_device, leaving = DeviceMemory(queues.device), list[tuple[Leaving, int]]()

    def arrive() -> None:
        on_its_way, segment = leaving.pop(0)
        for place, gradient in enumerate(on_its_way.arrive()[7]):
            assert on_its_way.is_done
            assert set(gradient.part.payload.view(torch.float32).tolist()) == {segment + place / 8}
            gradient.part.release()

    for segment, count in enumerate(counts):
        if len(leaving) == 2:
            arrive()
        sums = []
        for place in range(count):
            part = on_device.allocate(BUCKET)
            sum_ = torch.full((BUCKET.num_elements,), segment + place / 8)
            queues.compute.copy(part.payload.view(torch.float32), sum_)
            sums.append(GradientSum(BUCKET, Subtree(place, 0), part))
        leaving.append((way.depart({7: sums}), segment))
        run_some(queues, order)
    while leaving:
        arrive()
    assert not arena.live


def test_threads_that_copy_leave_the_kernels_of_others_alone() -> None:
    """Kernels of the processor run on one thread, whose number can change bits."""
    arena, before = StrictArena(), torch.get_num_threads()
    slab = arena.allocate(1 << 20)
    slab.view(torch.uint8).fill_(7)
    with single_threaded():
        placed = WeightsIn(queues := DeferredQueues()).place({0: slab})
        run_all(queues)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    assert bool((placed[0].view(torch.uint8) == 7).all())


def test_segment_is_done_when_its_kernels_are() -> None:
    """Also one without gradients, such as those of a forward pass."""
    queues = DeferredQueues()
    way = GradientsOut(queues, SlabMemory(StrictArena()), UnlimitedCores())
    queues.compute.copy(target := torch.zeros(1), torch.ones(1))
    leaving = way.depart({0: []})
    before = leaving.is_done
    leaving.wait()
    assert (before, leaving.is_done, float(target)) == (False, True, 1.0)
    assert leaving.arrive() == {0: []}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU of CUDA")
def test_queues_of_a_gpu_keep_the_order_of_events() -> None:
    """Weights of ten segments come back as they were, through kernels that add one."""
    from csnode.devices.cuda import CudaQueues

    queues: Queues = CudaQueues(0)
    arena, weights = StrictArena(), WeightsIn(queues)
    way, on_device = GradientsOut(queues, SlabMemory(arena), UnlimitedCores()), []
    leaving = []
    for segment in range(10):
        slab = arena.allocate(BUCKET.num_bytes)
        slab.view(torch.float32).fill_(segment)
        placed = weights.place({0: slab})
        slab.free()
        with queues.computing():
            part = DeviceMemory(queues.device).allocate(BUCKET)
            torch.add(placed[0].view(torch.float32), 1, out=part.payload.view(torch.float32))
        weights.note_read()
        on_device.append(part)
        leaving.append(way.depart({0: [GradientSum(BUCKET, Subtree(0, 0), part)]}))
    for segment, each in enumerate(leaving):
        (gradient,) = each.arrive()[0]
        assert set(gradient.part.payload.view(torch.float32).tolist()) == {segment + 1}
