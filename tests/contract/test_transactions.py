"""The contract of a protected job: stopped at any message, its steps are applied once.

The cluster of small_cluster.py, with messages in any order that a link allows.
"""

import random
from contextlib import suppress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.small_cluster import assert_same, holder, office, weights
from tests.contract.stoppable_jobs import JOB, Results, StoppableOffice, StoppedError, expected
from tests.support.roles.sorting_office import ORDERS, SortingOffice
from waferstream.core.messages.messages import StepDone
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import ReadProgress, Rollback
from waferstream.core.roles.role import Job, Progress

SERVERS = ("wgt-0", "wgt-1")


def progress(roles: SortingOffice) -> list[Progress]:
    found = [holder(roles, server).do(ReadProgress()) for server in SERVERS]
    return [one for one in found if one is not None]


@settings(max_examples=10, deadline=None)
@given(ORDERS)
def test_protection_changes_no_bit(order: random.Random) -> None:
    """Nor does it leave a slab or a message of one job to the next."""
    roles = office(order.choice)
    reports = roles.run(replace(JOB, last_step=2))
    reports += roles.run(replace(JOB, first_step=3))
    masters, results, norms, _ = expected()
    assert_same(weights(roles), masters)
    assert {key: v for report in reports for key, v in report.results.items()} == results
    assert {key: v for report in reports for key, v in report.norms.items()} == norms
    assert not any(arena.live for arena in roles.arenas.values())


@settings(max_examples=15, deadline=None)
@given(ORDERS, st.floats(0, 1))
def test_job_stopped_anywhere_goes_on_to_the_same_bits(order: random.Random, part: float) -> None:
    """With what servers know, and nothing that nodes, switches or workers remember."""
    masters, results, norms, num_messages = expected()
    roles = office(order.choice, StoppableOffice)
    assert isinstance(roles, StoppableOffice)
    roles.messages_left = 1 + int(part * num_messages)
    kept: Results = {}
    kept_norms: dict[int, float] = {}
    first = 1
    try:
        reports = roles.run(JOB)
    except StoppedError:
        known = progress(roles)
        done = min(*(one.applied_step for one in known), max(one.kept_step for one in known))
        for server in SERVERS:
            holder(roles, server).do(Rollback(JOB.attempt, done))
        for one in known:
            kept |= {key: v for key, v in one.report.results.items() if key[0] <= done}
            kept_norms |= {s: v for s, v in one.report.norms.items() if s <= done}
        first = min(done, JOB.last_step - 1) + 1
        if done == JOB.last_step:
            raise AssertionError("the last step is never kept") from None
        reports = roles.run(replace(JOB, first_step=first))
    assert_same(weights(roles), masters)
    kept |= {key: v for report in reports for key, v in report.results.items()}
    kept_norms |= {s: v for report in reports for s, v in report.norms.items()}
    assert kept == results
    assert kept_norms == norms


@settings(max_examples=15, deadline=None)
@given(ORDERS, st.floats(0, 1))
def test_weights_of_a_stopped_job_are_those_of_the_step_that_all_servers_hold(
    order: random.Random, part: float
) -> None:
    """Also without protection; where servers differ, or one is in an update, they hold two."""
    num_messages = expected()[3]
    roles = office(order.choice, StoppableOffice)
    assert isinstance(roles, StoppableOffice)
    roles.messages_left = 1 + int(part * num_messages)
    with suppress(StoppedError):
        roles.run(replace(JOB, attempt=0))
    held = roles.settle(SERVERS)
    assert held
    if len(held) == 1:
        (step,) = held
        undisturbed = office()
        if step:
            undisturbed.run(replace(JOB, attempt=0, last_step=step))
        assert_same(weights(roles), weights(undisturbed))


def test_evaluation_keeps_results_in_one_server_and_its_replica() -> None:
    """It updates nothing, so nothing waits; the first server keeps what the nodes returned."""
    roles = office()
    reports = roles.run(Job(ProgramKind.EVAL, 1, 3, attempt=1))
    first, second = progress(roles)
    returned = {key: v for report in reports for key, v in report.results.items()}
    assert (first.kept_step, second.kept_step) == (2, 0)
    assert first.report.results == {key: v for key, v in returned.items() if key[0] <= 2}
    assert {e.target for e in roles.delivered if isinstance(e.message, StepDone)} == {
        "wgt-0",
        "rpl-0",
    }


def test_unprotected_job_sends_and_keeps_nothing() -> None:
    roles = office()
    roles.run(replace(JOB, attempt=0))
    assert progress(roles) == []
    assert not any(isinstance(e.message, StepDone) for e in roles.delivered)
