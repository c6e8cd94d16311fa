"""Lanes: threads of one core each, or the thread of the caller."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import pytest
import torch

from csnode.lanes import Lanes


def test_single_lane_runs_in_the_thread_of_the_caller() -> None:
    """A cluster in one process starts no thread that could outlive it."""
    done = Lanes(1, "lane").submit(threading.get_ident)
    assert done.done()
    assert done.result() == threading.get_ident()


def test_lanes_work_side_by_side() -> None:
    """Each work waits for the other."""
    meeting, lanes = threading.Barrier(2, timeout=10), Lanes(2, "lane")
    arrived = [lanes.submit(meeting.wait) for _ in range(2)]
    assert {each.result() for each in arrived} == {0, 1}


def test_lanes_compute_on_one_torch_thread_each() -> None:
    """Threads never split a kernel."""
    lanes = Lanes(2, "lane")
    assert {lanes.submit(torch.get_num_threads).result() for _ in range(2)} == {1}


@pytest.mark.parametrize("count", [1, 2])
def test_lanes_raise_a_failure_with_its_result(count: int) -> None:
    """Submitting raises nothing."""
    failed = Lanes(count, "lane").submit(partial(divmod, 1, 0))
    with pytest.raises(ZeroDivisionError):
        failed.result()


def test_end_of_a_thread_is_reported_with_its_result() -> None:
    """Whoever waits for the work does not wait for ever."""
    with pytest.raises(SystemExit):
        Lanes(2, "lane").submit(sys.exit).result(10)


def test_no_lane_waits_for_work_that_another_follows() -> None:
    """The first lane goes on with other work; the follower has its turn when the second is free."""
    lanes, order = Lanes(2, "lane"), list[str]()
    is_free = threading.Event()
    long = lanes.submit(partial(is_free.wait, 10))
    follower = lanes.submit(partial(order.append, "follower"), long)
    lanes.submit(partial(order.append, "other")).result(10)
    is_free.set()
    follower.result(10)
    assert order == ["other", "follower"]


def test_work_that_follows_a_failure_begins() -> None:
    """It may ask what has happened."""
    lanes = Lanes(2, "lane")
    failed = lanes.submit(partial(divmod, 1, 0))
    assert isinstance(lanes.submit(failed.exception, failed).result(10), ZeroDivisionError)


def test_cancelled_work_never_begins_but_ends() -> None:
    """Whoever waits for all work returns, also where it follows other cancelled work."""
    lanes, begun = Lanes(2, "lane"), list[int]()
    is_free = threading.Event()
    long = lanes.submit(partial(is_free.wait, 10))
    middle = lanes.submit(partial(begun.append, 1), long)
    last = lanes.submit(partial(begun.append, 2), middle)
    assert [last.cancel(), middle.cancel()] == [True, True]
    is_free.set()
    everything: list[Future[Any]] = [long, middle, last]
    done, _ = wait(everything, 10)
    assert done == set(everything)
    assert not begun


def test_lanes_end_their_threads_when_deleted() -> None:
    """No explicit shutdown is needed."""
    lanes = Lanes(2, "ending")
    lanes.submit(int).result()
    (thread, *_) = (t for t in threading.enumerate() if t.name.startswith("ending"))
    del lanes
    thread.join(10)
    assert not thread.is_alive()
