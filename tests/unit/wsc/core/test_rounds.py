"""Rounds deal every micro-batch once, in order, in runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsc.core.rounds import Rounds

rounds = st.builds(Rounds, st.integers(1, 60), st.integers(1, 9), st.integers(1, 4))


@given(rounds)
def test_every_micro_batch_is_dealt_once_and_in_order(rounds):
    """Round by round and node by node the indices count up from 0."""
    dealt = [
        index
        for round_index in range(rounds.count)
        for node in range(rounds.num_nodes)
        for index in rounds.of_node(round_index, node)
    ]
    assert dealt == list(range(rounds.num_micro_batches))


@given(rounds)
def test_a_node_knows_its_own(rounds):
    """``node_of`` finds the node that ``of_node`` deals to."""
    for round_index in range(rounds.count):
        for node in range(rounds.num_nodes):
            own = rounds.of_node(round_index, node)
            assert len(own) <= rounds.lanes
            assert all(rounds.node_of(index) == node for index in own)


@given(rounds, st.data())
def test_neighbours_have_one_run(rounds, data):
    """The micro-batches below a switch are those of its nodes, end to end."""
    start = data.draw(st.integers(0, rounds.num_nodes - 1))
    nodes = range(start, data.draw(st.integers(start + 1, rounds.num_nodes)))
    for round_index in range(rounds.count):
        dealt = [i for node in nodes for i in rounds.of_node(round_index, node)]
        assert list(rounds.of_nodes(round_index, nodes)) == dealt


@given(rounds)
def test_no_round_is_empty(rounds):
    """The weights never stream for nobody."""
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
def test_small_cases(rounds, count, last_node, of_last_node):
    """By hand: the number of rounds, and what one node computes in the last one."""
    assert rounds.count == count
    assert tuple(rounds.of_node(count - 1, last_node)) == of_last_node
