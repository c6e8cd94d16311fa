"""The contract of replicas: whatever is lost at any message, the others have every weight.

The cluster of small_cluster.py, with messages in any order that a link allows.
"""

import random
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryx.holder import Holder
from tests.contract.small_cluster import assert_same, holder, office, weights
from tests.contract.stoppable_jobs import JOB, StoppableOffice, StoppedError, expected
from tests.support.roles.sorting_office import ORDERS, SortingOffice
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.core.messages.messages import Envelope, StepDone, UpdateSkipped
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import collected_by
from waferstream.core.roles.commands import Fill, Install, ReadProgress, Rollback

PAIRS = (("wgt-0", "rpl-0"), ("wgt-1", "rpl-1"))
HOLDERS = frozenset(name for pair in PAIRS for name in pair)


def contents(one: Holder) -> dict[str, torch.Tensor]:
    """Return masters and optimizer state of a server or a replica."""
    return {name: t for state in CLUSTER_STATES for name, t in one.store.tensors(state).items()}


def refill(roles: SortingOffice, lost: str, source: str) -> None:
    """Build a role anew and fill it from its partner."""
    fresh = StoppableOffice(
        [role.spec for role in roles.roles.values() if role.name == lost]  # type: ignore[attr-defined]
    ).roles[lost]
    for installation in holder(roles, source).installed.values():
        fresh.do(Install(installation))
    roles.roles[lost] = fresh
    for state in CLUSTER_STATES:
        holder(roles, lost).do(Fill(holder(roles, source).store.tensors(state), state))


@settings(max_examples=10, deadline=None)
@given(ORDERS)
def test_replicas_have_the_bits_of_their_servers(order: random.Random) -> None:
    """Whether the job is protected or not, and whatever the order; no slab is left."""
    roles = office(order.choice)
    roles.run(replace(JOB, attempt=order.randrange(2)))
    for server, replica in PAIRS:
        assert_same(contents(holder(roles, server)), contents(holder(roles, replica)))
    assert_same(weights(roles), expected()[0])
    assert not any(arena.live for arena in roles.arenas.values())


@settings(max_examples=25, deadline=None)
@given(
    order=ORDERS,
    part=st.floats(0, 1),
    lost=st.sampled_from(sorted(HOLDERS)),
)
def test_no_step_is_lost_with_any_server_or_replica(
    order: random.Random, part: float, lost: str
) -> None:
    """The survivors roll back to one step, the lost one is filled from its partner, and the rest of
    the job ends with the bits of an undisturbed one; the results of earlier steps are kept."""
    masters, results, norms, num_messages = expected()
    roles = office(order.choice, StoppableOffice)
    assert isinstance(roles, StoppableOffice)
    roles.messages_left = 1 + int(part * num_messages)
    try:
        roles.run(JOB)
    except StoppedError:
        survivors = [holder(roles, name) for name in sorted(HOLDERS - {lost})]
        known = [p for one in survivors if (p := one.do(ReadProgress())) is not None]
        done = min(*(one.applied_step for one in known), max(one.kept_step for one in known))
        assert done < JOB.last_step
        for one in survivors:
            one.do(Rollback(JOB.attempt, done))
        kept = {k: v for one in known for k, v in one.report.results.items() if k[0] <= done}
        assert kept == {k: v for k, v in results.items() if k[0] <= done}
        noted = {s: v for one in known for s, v in one.report.norms.items() if s <= done}
        assert noted == {s: v for s, v in norms.items() if s <= done}
        (source,) = [next(n for n in pair if n != lost) for pair in PAIRS if lost in pair]
        refill(roles, lost, source)
        roles.messages_left = 10**9
        roles.run(replace(JOB, first_step=done + 1))
    assert_same(weights(roles), masters)
    for server, replica in PAIRS:
        assert_same(contents(holder(roles, server)), contents(holder(roles, replica)))


def test_skipped_updates_change_nothing() -> None:
    """A replica counts the step that its server skips, tells the others, and keeps its weights."""
    roles = office()
    replica = holder(roles, "rpl-0")
    before = {name: tensor.clone() for name, tensor in contents(replica).items()}
    job = roles.roles["rpl-0"].begin(replace(JOB, last_step=2))
    parties = [*replica.installed[ProgramKind.TRAIN].keepers, "csx-0", "csx-1", "csx-2"]
    for party in parties:
        if party != "rpl-0":
            list(job.handle(Envelope(party, "rpl-0", StepDone(1))))
    buckets = [
        bucket.index for bucket in collected_by(replica.installed[ProgramKind.TRAIN].schedule, 0)
    ]
    sent: list[Envelope] = []
    for step in (1, 2):
        assert not job.finished
        for bucket in buckets:
            sent += job.handle(Envelope("wgt-0", "rpl-0", UpdateSkipped(step, bucket)))
    assert job.finished
    assert {e.target for e in sent if e.message == StepDone(1)} == {"wgt-0", "wgt-1", "rpl-1"}
    assert_same(contents(replica), before)
