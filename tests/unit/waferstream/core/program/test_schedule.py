"""The static schedule: rounds of micro-batches, and segment steps in a feasible order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs.small_programs import program
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import (
    Rounds,
    Schedule,
    collected_by,
    schedule_of,
    streamed_by,
)
from waferstream.core.program.stream_plan import plan_streams

equal_rounds = st.builds(Rounds, st.integers(1, 60), st.integers(1, 9), st.integers(1, 4))
shares = st.lists(st.integers(1, 5), min_size=1, max_size=9).map(tuple)
shared_rounds = st.builds(lambda count, s: Rounds(count, len(s), 1, s), st.integers(1, 60), shares)
rounds = equal_rounds | shared_rounds


@given(rounds)
def test_rounds_assign_each_micro_batch_once_in_order(rounds: Rounds) -> None:
    """Round by round and node by node the indices count up from 0."""
    assigned = [
        index
        for round_index in range(rounds.count)
        for node in range(rounds.num_nodes)
        for index in rounds.of_node(round_index, node)
    ]
    assert assigned == list(range(rounds.num_micro_batches))


@given(rounds)
def test_rounds_node_of_inverts_of_node(rounds: Rounds) -> None:
    """``node_of`` finds the node to which ``of_node`` assigns a micro-batch."""
    for round_index in range(rounds.count):
        for node in range(rounds.num_nodes):
            own = rounds.of_node(round_index, node)
            assert len(own) <= rounds.share_of(node)
            assert all(rounds.node_of(index) == node for index in own)


@given(rounds, st.data())
def test_rounds_of_nodes_is_one_contiguous_run(rounds: Rounds, data: st.DataObject) -> None:
    """The micro-batches below a switch are those of its nodes, end to end."""
    start = data.draw(st.integers(0, rounds.num_nodes - 1))
    nodes = range(start, data.draw(st.integers(start + 1, rounds.num_nodes)))
    for round_index in range(rounds.count):
        assigned = [i for node in nodes for i in rounds.of_node(round_index, node)]
        assert list(rounds.of_nodes(round_index, nodes)) == assigned


@given(rounds)
def test_rounds_are_never_empty(rounds: Rounds) -> None:
    """Weights never stream in a round without micro-batches."""
    assert all(rounds.of_node(round_index, 0) for round_index in range(rounds.count))


@pytest.mark.parametrize(
    ("rounds", "count", "last_node", "of_last_node"),
    [
        (Rounds(8, 4, 1), 2, 3, (7,)),
        (Rounds(11, 3, 2), 2, 2, (10,)),
        (Rounds(3, 4, 1), 1, 3, ()),
        (Rounds(9, 4, 2), 2, 1, ()),
    ],
)
def test_rounds_of_small_batches(
    rounds: Rounds, count: int, last_node: int, of_last_node: tuple[int, ...]
) -> None:
    """By hand: the number of rounds, and what one node computes in the last one."""
    assert rounds.count == count
    assert tuple(rounds.of_node(count - 1, last_node)) == of_last_node


@pytest.fixture(scope="module")
def captured() -> Program:
    """Return a compiled program."""
    return compile_model(Regression(depth=3), random_batches(1, 4)[0], 2).program


@pytest.fixture(params=["by hand", "compiled"])
def tiny(request: pytest.FixtureRequest, captured: Program) -> Program:
    return program() if request.param == "by hand" else captured


@pytest.fixture(params=[1, 2, 3])
def num_servers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def schedule(tiny: Program, num_servers: int) -> Schedule:
    return schedule_of(tiny, plan_streams(tiny, num_servers))


def test_schedule_has_one_step_per_segment(tiny: Program, num_servers: int) -> None:
    steps = schedule(tiny, num_servers)
    assert [step.segment for step in steps] == [segment.index for segment in tiny.segments]
    assert [step.label for step in steps] == [f"{s.layer} {s.phase}" for s in tiny.segments]


def test_schedule_streams_what_each_kernel_reads(tiny: Program, num_servers: int) -> None:
    """The buckets of a step are exactly its segment's weights and gradients."""
    for step in schedule(tiny, num_servers):
        segment = tiny.segments[step.segment]
        weights = [name for bucket in step.weights for name in bucket.names]
        gradients = [name for bucket in step.gradients for name in bucket.names]
        assert sorted(weights) == sorted(segment.weights)
        assert sorted(gradients) == sorted(segment.gradients)


def test_schedule_stashes_values_before_they_are_read(tiny: Program, num_servers: int) -> None:
    values = {spec.name for spec in tiny.inputs}
    for step in schedule(tiny, num_servers):
        assert set(tiny.segments[step.segment].inputs) <= values
        values |= set(step.stashes)
        assert set(step.drops) <= values
        values -= set(step.drops)
    assert not values, "something is left on the node"


def test_schedule_keeps_the_order_of_the_stream_plan(tiny: Program, num_servers: int) -> None:
    plan = plan_streams(tiny, num_servers)
    steps = schedule_of(tiny, plan)
    assert [bucket for step in steps for bucket in step.weights] == list(plan.weights)
    assert [bucket for step in steps for bucket in step.gradients] == list(plan.gradients)


def test_step_stash_is_that_of_its_segment(tiny: Program) -> None:
    for step in schedule(tiny, 1):
        for samples in (1, 7):
            pieces = tiny.segments[step.segment].stash
            assert step.stash.of(samples) == sum(p.footprint.of(samples) for p in pieces)


def test_step_load_ignores_names(tiny: Program) -> None:
    """Server, elements and bytes of every bucket decide the time of the streams."""
    for step in schedule(tiny, 2):
        weights, gradients = step.load
        assert weights == tuple((b.server, b.num_elements, b.num_bytes) for b in step.weights)
        assert gradients == tuple((b.server, b.num_elements, b.num_bytes) for b in step.gradients)


def test_servers_stream_and_collect_every_bucket_once(tiny: Program, num_servers: int) -> None:
    plan = plan_streams(tiny, num_servers)
    steps = schedule_of(tiny, plan)
    for of_server, buckets in ((streamed_by, plan.weights), (collected_by, plan.gradients)):
        shares = [of_server(steps, server) for server in range(num_servers)]
        assert all(list(share) == sorted(share, key=lambda b: b.index) for share in shares)
        together = [bucket for share in shares for bucket in share]
        assert sorted(together, key=lambda b: b.index) == list(buckets)
