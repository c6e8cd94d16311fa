"""Whose turn it is: the most urgent, those that have run, and tenants by the tokens they had."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from appliance.serving.fair_queue import FairQueue
from appliance.serving.sequence import Sequence
from waferstream.core.serving import Request, Sampling

NUMBERS = count()


def waiting(tenant: str, length: int = 1, priority: int = 0) -> Sequence:
    request = Request("", (0,) * length, 1, Sampling(0), tenant=tenant)
    return Sequence(replace(request, priority=priority), next(NUMBERS))


def begin(queue: FairQueue) -> Sequence:
    each = queue.first()
    assert each is not None
    queue.begin(each)
    each.found = 0
    return each


def test_most_urgent_comes_first_then_what_has_run() -> None:
    queue = FairQueue(100, 100)
    low, has_run, late, high = (waiting("a", priority=p) for p in (-1, 0, 0, 1))
    has_run.found = 0
    for each in (low, late, has_run, high):
        queue.put(each)
    assert [begin(queue) for _ in range(4)] == [high, has_run, late, low]
    assert queue.first() is None


def test_sequence_that_has_run_is_charged_once() -> None:
    queue = FairQueue(100, 100)
    preempted = waiting("a")
    for each in (preempted, waiting("b")):
        queue.put(each)
        begin(queue)
    queue.put(preempted)
    begin(queue)
    for each in (first := waiting("a"), waiting("b")):
        queue.put(each)
    assert begin(queue) is first


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=60))
def test_tenants_that_ask_all_the_time_have_the_same(asked: list[tuple[str, int]]) -> None:
    """To one request, while each of them has requests that wait."""
    queue, had = FairQueue(100, 100), Counter[str]()
    for tenant, length in asked:
        queue.put(waiting(tenant, length))
    while {each.request.tenant for each in queue} == {"a", "b"}:
        request = begin(queue).request
        had[request.tenant] += len(request.prompt)
        assert abs(had["a"] - had["b"]) <= 9


@given(st.integers(1, 40))
def test_tenant_saves_nothing_up(length: int) -> None:
    """One that comes later has no more than its share from then on."""
    queue = FairQueue(100, 100)
    for _ in range(60):
        queue.put(waiting("old"))
    for _ in range(length):
        begin(queue)
    for _ in range(60):
        queue.put(waiting("new"))
    tenants = [begin(queue).request.tenant for _ in range(20)]
    assert 9 <= tenants.count("new") <= 11
