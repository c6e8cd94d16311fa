"""Partial sums: added in fp32, in owned memory, and released after the last read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.roles.arenas import StrictArena
from waferstream.core.messages.messages import Envelope, WeightsReleased
from waferstream.core.messages.partial_sum import Credit, PartialSum
from waferstream.core.messages.reduce_order import Merger, leaf, root

COUNT = 5
GENERATOR = torch.Generator().manual_seed(0)
PARTS = torch.randn(COUNT, 3, generator=GENERATOR) * 10.0 ** torch.arange(COUNT)[:, None]
SUM = ((PARTS[0] + PARTS[1]) + (PARTS[2] + PARTS[3])) + PARTS[4]


class Sums:
    """Makes sums in slabs that become unreadable as soon as they are released."""

    def __init__(self) -> None:
        self.senders, self.mine = StrictArena(), StrictArena()

    def borrowed(self, values: torch.Tensor) -> PartialSum:
        slab = self.senders.allocate(4 * values.numel())
        slab.view(torch.float32).copy_(values)
        return PartialSum([slab.view(torch.float32)], slab, on_release=slab.free)

    def allocate(self, like: PartialSum) -> PartialSum:
        slab = self.mine.allocate(4 * like.flat.numel())
        return PartialSum([slab.view(torch.float32)], slab, is_owned=True, on_release=slab.free)

    def add(self, left: PartialSum, right: PartialSum) -> PartialSum:
        return left.add(right, self.allocate)


@given(st.permutations(range(COUNT)))
def test_add_in_reduce_order_gives_the_canonical_sum(order: list[int]) -> None:
    """In any order of arrival senders get all their memory back, one slab is left."""
    sums = Sums()
    merger: Merger[PartialSum] = Merger(COUNT, sums.add)
    for index in order:
        merger.offer(leaf(index, COUNT), sums.borrowed(PARTS[index]))
    ((subtree, whole),) = merger.take()
    assert subtree == root(COUNT)
    assert whole.is_owned
    assert torch.equal(whole.flat, SUM)
    assert sums.senders.live == set()
    assert len(sums.mine.live) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_add_of_borrowed_sums_is_in_fp32(dtype: torch.dtype) -> None:
    """The operands keep their bits, for every dtype."""
    left, right = (PARTS[index].clamp(-100, 100).to(dtype) for index in (0, 1))
    before = left.clone(), right.clone()
    total = PartialSum([left]).add(PartialSum([right]), Sums().allocate)
    assert torch.equal(total.flat, left.float() + right.float())
    assert torch.equal(left, before[0])
    assert torch.equal(right, before[1])


@pytest.mark.parametrize("turned", [False, True])
def test_add_of_large_halves_is_in_fp32(turned: bool) -> None:
    """They are cast piece by piece, in the order of their elements, however they lie."""
    rows = (1 << 17) + 3
    halves = [torch.randn(rows, 4, generator=GENERATOR).bfloat16() for _ in range(2)]
    if turned:
        halves = [half.t().contiguous().t() for half in halves]
    left, right = halves
    total = PartialSum([torch.empty(rows, 4)], is_owned=True)
    PartialSum([left]).add(PartialSum([right]), lambda _: total)
    assert torch.equal(total.flat, left.float() + right.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("single_first", [True, False])
@pytest.mark.parametrize("is_owned", [True, False])
def test_add_of_a_sum_and_a_single_micro_batch_is_in_fp32(
    dtype: torch.dtype, single_first: bool, is_owned: bool
) -> None:
    """The sum is fp32, the other is as its kernels return it; large ones are added in pieces."""
    size = (1 << 18) + 3
    many = torch.randn(size, generator=GENERATOR)
    single = torch.randn(size, generator=GENERATOR).to(dtype)
    expected = many + single.float()
    pair = (PartialSum([many], is_owned=is_owned), PartialSum([single]))
    left, right = reversed(pair) if single_first else pair
    total = left.add(right, Sums().allocate)
    assert total.is_owned
    assert torch.equal(total.flat, expected)


@pytest.mark.parametrize("owned_first", [True, False])
def test_add_reuses_the_owned_operand(owned_first: bool) -> None:
    sums = Sums()
    owned, borrowed = sums.borrowed(PARTS[0]), sums.borrowed(PARTS[1])
    owned.move_to(sums.allocate(owned))
    pair = (owned, borrowed) if owned_first else (borrowed, owned)
    assert sums.add(*pair) is owned
    assert torch.equal(owned.flat, PARTS[0] + PARTS[1])
    assert sums.mine.allocated == 1
    assert sums.senders.live == set()


def test_add_of_owned_sums_frees_one() -> None:
    sums = Sums()
    pair = [sums.borrowed(PARTS[index]) for index in (0, 1)]
    for part in pair:
        part.move_to(sums.allocate(part))
    total = sums.add(*pair)
    assert torch.equal(total.flat, PARTS[0] + PARTS[1])
    assert len(sums.mine.live) == 1


def test_move_to_takes_over_the_memory_and_gives_the_other_back() -> None:
    sums = Sums()
    part = sums.borrowed(PARTS[2])
    part.move_to(sums.allocate(part))
    assert part.is_owned
    assert torch.equal(part.flat, PARTS[2])
    assert sums.senders.live == set()
    assert {part.payload} == sums.mine.live
    assert sums.mine.allocated == 1


def test_release_acts_once() -> None:
    sums = Sums()
    part = sums.borrowed(PARTS[0])
    part.release()
    part.release()
    assert sums.senders.live == set()


def test_credit_puts_its_message_into_the_outbox() -> None:
    outbox: list[Envelope] = []
    envelope = Envelope("br-0", "csx-0", WeightsReleased(1, 0, 0))
    PartialSum([PARTS[0]], on_release=Credit(envelope, outbox)).release()
    assert outbox == [envelope]
