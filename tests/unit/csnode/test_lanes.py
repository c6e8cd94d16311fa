"""Lanes: side by side where there are several, and no thread where there is one."""

import threading

import pytest
import torch

from csnode.lanes import Lanes


def test_a_single_lane_is_the_thread_of_the_caller():
    """So that a cluster in one process starts no thread that could outlive it."""
    assert (
        Lanes(1, "lane").map(lambda _: threading.get_ident(), "abc") == [threading.get_ident()] * 3
    )


def test_lanes_work_side_by_side():
    """Each waits here until the other one has come, too; results keep the order of the items."""
    meeting = threading.Barrier(2, timeout=10)
    arrived = Lanes(2, "lane").map(lambda item: (meeting.wait() >= 0, item), "ab")
    assert arrived == [(True, "a"), (True, "b")]


def test_a_lane_computes_on_one_core():
    """Threads never split a kernel."""
    assert Lanes(2, "lane").map(lambda _: torch.get_num_threads(), "ab") == [1, 1]


@pytest.mark.parametrize("count", [1, 2])
def test_what_fails_in_a_lane_is_raised(count):
    """At once, not when somebody asks."""
    with pytest.raises(ZeroDivisionError):
        Lanes(count, "lane").map(lambda item: 1 // item, [1, 0])


def test_threads_end_with_their_lanes():
    """Without anybody telling them."""
    lanes = Lanes(2, "ending")
    lanes.map(abs, [1, 2])
    (thread, *_) = (t for t in threading.enumerate() if t.name.startswith("ending"))
    del lanes
    thread.join(10)
    assert not thread.is_alive()
