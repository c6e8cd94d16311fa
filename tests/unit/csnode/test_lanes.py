"""Lanes: threads of one core each, or the thread of the caller."""

from __future__ import annotations

import threading
from functools import partial

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


def test_lanes_end_their_threads_when_deleted() -> None:
    """No explicit shutdown is needed."""
    lanes = Lanes(2, "ending")
    lanes.submit(int).result()
    (thread, *_) = (t for t in threading.enumerate() if t.name.startswith("ending"))
    del lanes
    thread.join(10)
    assert not thread.is_alive()
