"""The collector: one sum per bucket and step, memory back as early as possible."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memoryx.collector import GradientCollector
from tests.support.arenas import StrictArena
from wsc.core.reduce_order import Subtree, leaf, root

COUNT = 5
GENERATOR = torch.Generator().manual_seed(0)
PARTS = torch.randn(COUNT, 3, generator=GENERATOR) * 10.0 ** torch.arange(COUNT)[:, None]
SUM = ((PARTS[0] + PARTS[1]) + (PARTS[2] + PARTS[3])) + PARTS[4]


class Senders:
    """Slabs that are freed, and so become unreadable, as soon as they are released."""

    def __init__(self):
        self.arena = StrictArena()
        self.collector = GradientCollector(COUNT)

    def offer(self, subtree, values):
        slab = self.arena.allocate(12)
        slab.view(torch.float32).copy_(values)
        return self.collector.offer(subtree, slab, slab.free)


@given(st.permutations(range(COUNT)))
def test_the_sum_is_that_of_the_canonical_order(order):
    """Whatever arrives first; only the last subtree completes it."""
    senders = Senders()
    *early, last = [senders.offer(leaf(index, COUNT), PARTS[index]) for index in order]
    assert early == [None] * (COUNT - 1)
    assert torch.equal(last.flat, SUM)


@given(st.permutations(range(COUNT)))
def test_senders_get_their_memory_back_at_once(order):
    """What has to wait is copied; only the subtree that completes the sum may be held."""
    senders = Senders()
    for index in order[:-1]:
        senders.offer(leaf(index, COUNT), PARTS[index])
        assert senders.arena.live == set()
    whole = senders.offer(leaf(order[-1], COUNT), PARTS[order[-1]])
    whole.give_back()
    assert senders.arena.live == set()


def test_a_sum_that_comes_whole_is_used_in_place():
    """One tree that added everything: no copy, and the sender waits until it is applied."""
    senders = Senders()
    whole = senders.offer(root(COUNT), SUM)
    (slab,) = senders.arena.live
    assert whole.flat.data_ptr() == slab.view(torch.float32).data_ptr()
    whole.give_back()
    assert senders.arena.live == set()


def test_giving_back_twice_releases_once():
    """A sum that was given back has nothing more to give."""
    senders = Senders()
    whole = senders.offer(root(COUNT), SUM)
    whole.give_back()
    whole.give_back()


def test_a_span_that_comes_twice_is_an_error():
    """A gradient counts once."""
    senders = Senders()
    senders.offer(Subtree(0, 0), PARTS[0])
    with pytest.raises(ValueError, match="twice"):
        senders.offer(Subtree(0, 0), PARTS[0])
