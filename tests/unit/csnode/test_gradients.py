"""Gradients of a node: micro-batches become fp32 sums in the reduce order, on any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csnode.gradients import GradientSums, SlabMemory
from tests.support.programs.small_programs import program
from tests.support.roles.arenas import StrictArena
from tests.support.roles.subtrees import merged_subtrees
from waferstream.core.messages.partial_sum import one_by_one
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.sparsity.nonzeros import Index

PROGRAM = program()
PLAN = plan_streams(PROGRAM, 1)
BUCKET = PLAN.gradients[-1]  # first.weight (4, 4) and first.bias (4,)


Gradients = dict[str, torch.Tensor]
MicroBatch = tuple[int, Gradients]


def micro_batches(indices: Iterable[int], dtype: torch.dtype = torch.float32) -> list[MicroBatch]:
    generator = torch.Generator().manual_seed(0)
    everything = [
        {
            "first.weight": torch.randn(4, 4, generator=generator).to(dtype),
            "first.bias": torch.randn(4, generator=generator).to(dtype),
        }
        for _ in range(PROGRAM.num_micro_batches)
    ]
    return [(index, everything[index]) for index in indices]


def flat(batch: MicroBatch) -> torch.Tensor:
    return torch.cat([batch[1][name].float().reshape(-1) for name in BUCKET.names])


def packed(
    batches: Sequence[MicroBatch], leaf_dtype: torch.dtype = torch.float32
) -> tuple[dict[Subtree, torch.Tensor], StrictArena]:
    """Return a copy of the sum of each subtree, and the arena."""
    arena = StrictArena()
    sums = GradientSums(
        [BUCKET], PROGRAM.num_micro_batches, SlabMemory(arena), leaf_dtype=leaf_dtype
    )
    for index, gradients in batches:
        sums.offer(index, gradients)
    return {
        subtree: part.payload.view(part.tensors[0].dtype).clone()
        for _, subtree, part in sums.take(one_by_one)
    }, arena


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_copies_a_single_micro_batch(dtype: torch.dtype) -> None:
    """As fp32, in bucket order; the kernel's own tensors are unchanged."""
    (batch,) = micro_batches([2], dtype)
    before = flat(batch)
    found, _ = packed([batch])
    assert found.keys() == {Subtree(2, 0)}
    assert torch.equal(found[Subtree(2, 0)], before)
    assert torch.equal(flat(batch), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_single_micro_batch_keeps_the_dtype_of_its_kernels(dtype: torch.dtype) -> None:
    """In half the bytes; sums are fp32 all the same."""
    found, arena = packed(micro_batches([0, 1, 2], dtype), leaf_dtype=dtype)
    assert {subtree: values.dtype for subtree, values in found.items()} == {
        Subtree(0, 1): torch.float32,
        Subtree(2, 0): dtype,
    }
    first, second, alone = map(flat, micro_batches([0, 1, 2], dtype))
    assert torch.equal(found[Subtree(0, 1)], first + second)
    assert torch.equal(found[Subtree(2, 0)].float(), alone)
    assert sorted(slab.num_bytes for slab in arena.live) == [40, 80]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_sums_siblings_in_fp32(dtype: torch.dtype) -> None:
    """In the canonical order, for every dtype of the kernels."""
    found, _ = packed(micro_batches(range(5), dtype))
    g = [flat(batch) for batch in micro_batches(range(5), dtype)]
    assert found.keys() == {Subtree(0, 3)}
    assert torch.equal(found[Subtree(0, 3)], ((g[0] + g[1]) + (g[2] + g[3])) + g[4])


def test_sums_keeps_other_subtrees_apart() -> None:
    """1 and 2 have different parents."""
    found, _ = packed(micro_batches([1, 2]))
    assert found.keys() == {Subtree(1, 0), Subtree(2, 0)}


@given(st.lists(st.integers(0, 4), unique=True))
def test_sums_leaves_one_slab_per_subtree(indices: list[int]) -> None:
    """Intermediate sums are freed."""
    found, arena = packed(micro_batches(sorted(indices)))
    assert list(found) == merged_subtrees(sorted(indices), 5)
    assert len(arena.live) == len(found)
    assert not any(values.isnan().any() for values in found.values())


def test_sums_sums_two_micro_batches_in_one_slab() -> None:
    """Two micro-batches take one slab, not three."""
    _, arena = packed(micro_batches([0, 1]))
    assert arena.allocated == 1


def test_sums_of_eight_micro_batches_take_a_slab_per_level() -> None:
    """Offered in order, no more than one sum of each level is kept."""
    sums = GradientSums([BUCKET], 8, SlabMemory(arena := StrictArena()))
    for index in range(8):
        sums.offer(index, micro_batches([0])[0][1])
        assert len(arena.live) <= 3


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_in_their_memory_are_sent_from_there(count: int, dtype: torch.dtype) -> None:
    """The kernel writes the weight there; the bias is copied to it. Sums of halves take others."""
    sums = GradientSums(
        [BUCKET], PROGRAM.num_micro_batches, SlabMemory(arena := StrictArena()), leaf_dtype=dtype
    )
    for index, gradients in micro_batches(range(count), dtype):
        memory = sums.allocate({"first.weight"})
        memory.tensors["first.weight"].copy_(gradients["first.weight"])
        written = memory.tensors["first.weight"].t().t()  # as a kernel returns it
        sums.offer(index, {**gradients, "first.weight": written}, memory)
    taken = sums.take(one_by_one)
    assert arena.allocated == count + (0 if dtype == torch.float32 else count // 2)
    expected, _ = packed(micro_batches(range(count), dtype), dtype)
    assert expected.keys() == {subtree for _, subtree, _ in taken}
    for _, subtree, part in taken:
        values = expected[subtree]
        assert torch.equal(part.payload.view(values.dtype), values)
    assert len(arena.live) == len(taken)


def test_buckets_have_memory_if_most_of_them_is_written_there() -> None:
    """The weight has 16 elements, the bias has 4. What is packed has none."""
    index = Index.of(torch.eye(4) > 0)
    whole, sparse = (
        GradientSums([BUCKET], PROGRAM.num_micro_batches, SlabMemory(StrictArena()), indexes)
        for indexes in ({}, {"first.weight": index})
    )
    assert whole.allocate({"first.weight"}).tensors.keys() == set(BUCKET.names)
    assert not whole.allocate({"first.bias"}).tensors
    assert not sparse.allocate(set(BUCKET.names)).tensors


def test_sums_do_not_depend_on_the_threads_that_offer() -> None:
    """Whoever comes second adds, in the canonical order."""
    expected, _ = packed(micro_batches(range(5)))
    for _ in range(20):
        arena = StrictArena()
        sums = GradientSums([BUCKET], PROGRAM.num_micro_batches, SlabMemory(arena))
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(sums.offer, *zip(*micro_batches(range(5)), strict=True)))
        ((_, subtree, part),) = sums.take(one_by_one)
        assert torch.equal(part.payload.view(torch.float32), expected[subtree])
        assert len(arena.live) == 1
