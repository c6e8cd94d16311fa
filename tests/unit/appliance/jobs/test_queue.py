"""The queue: priority before age, nobody overtakes, systems and MemoryX groups are not exceeded."""

from __future__ import annotations

import pytest

from appliance.jobs.job import PRIORITIES, ClusterJob, Condition, Phase, Request
from appliance.jobs.owner import Owner
from appliance.jobs.queue import QueueSpec, scheduled, waiting_reason
from tests.support.errors import raises
from waferstream.core.errors import ClusterJobScheduleError, ConfigError

FOUR = QueueSpec(systems=4, memoryx_groups=2)


def job(name: str, age: float, phase: Phase, *, num_csx: int = 1, at: str = "p2") -> ClusterJob:
    return ClusterJob(
        name=name,
        kind="execute",
        workflow="wflow-0",
        request=Request(num_csx=num_csx, priority=PRIORITIES[at]),
        owner=Owner(user="u", host="h", pid=1, started_ticks=0),
        conditions=(
            Condition(phase=Phase.CREATED, time_s=-age),
            Condition(phase=phase, time_s=-age),
        ),
        log_path="",
    )


@pytest.mark.parametrize("name", ["systems", "memoryx_groups"])
def test_queue_is_bounded(name: str) -> None:
    """Lists of what a cluster has do not fill the memory."""
    with raises(ConfigError, "out-of-range"):
        QueueSpec.model_validate({"systems": 1} | {name: 10**12})


def test_priority_goes_before_age() -> None:
    old = job("old", 9, Phase.QUEUED)
    young = job("young", 1, Phase.QUEUED)
    urgent = job("urgent", 0, Phase.QUEUED, at="p1")
    jobs = [young, urgent, old]
    assert waiting_reason("urgent", jobs, FOUR) is None
    assert waiting_reason("old", jobs, FOUR) == "urgent is ahead with priority P1 (199)"
    assert waiting_reason("old", [young, old], FOUR) is None
    assert waiting_reason("young", [young, old], FOUR) == "old is ahead with priority P2 (299)"


def test_job_waits_for_systems_and_is_not_overtaken() -> None:
    taken = job("taken", 9, Phase.RUNNING, num_csx=3)
    large = job("large", 5, Phase.QUEUED, num_csx=2)
    small = job("small", 1, Phase.QUEUED)
    jobs = [taken, large, small]
    assert waiting_reason("large", jobs, FOUR) == "2 CSX requested, 1 of 4 are free: taken"
    assert waiting_reason("small", jobs, FOUR) == "large is ahead with priority P2 (299)"
    assert waiting_reason("large", [large, small], FOUR) is None


def test_job_waits_for_a_memoryx_group() -> None:
    """Systems alone would allow a third training; compile jobs and ended ones take no group."""
    held = [job("a", 9, Phase.INITIALIZING), job("b", 8, Phase.FAILING)]
    free = [
        job("c", 7, Phase.SUCCEEDED),
        job("d", 6, Phase.RUNNING).model_copy(update={"kind": "compile"}),
    ]
    new = job("new", 1, Phase.QUEUED)
    reason = "all MemoryX groups are in use (2): a, b"
    assert waiting_reason("new", [*held, *free, new], FOUR) == reason
    assert waiting_reason("new", [*held[:1], *free, new], FOUR) is None


def test_job_leaves_the_queue_or_says_why_not() -> None:
    """The reason changes; the time since which it waits does not."""
    first, second = job("first", 2, Phase.QUEUED), job("second", 1, Phase.QUEUED)
    assert scheduled("first", [first, second], FOUR, 5.0).time_of(Phase.SCHEDULED) == 5.0
    waiting = scheduled("second", [first, second], FOUR, 5.0)
    assert waiting.reason == "first is ahead with priority P2 (299)"
    assert waiting.time_of(Phase.QUEUED) == second.time_of(Phase.QUEUED)
    assert scheduled("second", [first, waiting], FOUR, 6.0) is waiting


def test_more_systems_than_there_are_is_refused() -> None:
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        waiting_reason("huge", [job("huge", 1, Phase.QUEUED, num_csx=5)], FOUR)
