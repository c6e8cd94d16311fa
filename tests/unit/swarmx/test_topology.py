"""The broadcast/reduce tree: one path per node, even shares, bounded fan-out; SwarmX nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.topology import Tree, swarmx_nodes
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.messages.messages import node_name
from waferstream.machine.hardware import SwarmXSpec

ONE_TO_FOUR = SwarmXSpec()
TWO_ONE_TO_TWO = SwarmXSpec(fan_out=2)

trees = st.builds(Tree, num_nodes=st.integers(1, 300), fan_out=st.integers(2, 9))


@given(trees)
def test_every_node_has_exactly_one_path_to_the_root(tree: Tree) -> None:
    """Descending from the root by children's names reaches every node and switch once."""
    by_name = {switch.name: switch for switch in tree.switches}
    met, todo = [], ["br-0"]
    while todo:
        name = todo.pop(0)
        met.append(name)
        todo.extend(by_name[name].children if name in by_name else ())
    nodes = [name for name in met if name not in by_name]
    assert nodes == [node_name(node) for node in range(tree.num_nodes)]
    assert sorted(set(met)) == sorted(met)
    assert len(met) == tree.num_nodes + tree.num_switches


@given(trees)
def test_parents_and_children_agree_at_equal_depth(tree: Tree) -> None:
    """Going up from any node by parents takes ``depth`` switches and ends at the root."""
    for node in range(tree.num_nodes):
        index: int | None = tree.parent_of(node)
        child, steps = node_name(node), 0
        while index is not None:
            switch = tree.switches[index]
            assert switch.index == index
            assert child in switch.children
            assert node in switch.nodes
            child, index, steps = switch.name, switch.parent, steps + 1
        assert (child, steps) == ("br-0", tree.depth)


@given(trees)
def test_switches_divide_nodes_evenly_within_the_fan_out(tree: Tree) -> None:
    """Each switch has 1 to fan_out children, below which the numbers of nodes differ by at most one."""
    by_name = {switch.name: switch for switch in tree.switches}
    for switch in tree.switches:
        assert 1 <= len(switch.children) <= tree.fan_out
        below = [len(by_name[c].nodes) if c in by_name else 1 for c in switch.children]
        assert max(below) - min(below) <= 1


@given(trees)
def test_switches_of_a_level_divide_the_nodes_in_order(tree: Tree) -> None:
    """The node ranges of a level are contiguous, disjoint, and cover all nodes."""
    for level in range(tree.depth):
        nodes = [node for s in tree.switches if s.level == level for node in s.nodes]
        assert nodes == list(range(tree.num_nodes))


@given(st.integers(1, 700), st.integers(2, 9))
def test_num_switches_counts_the_switches(num_nodes: int, fan_out: int) -> None:
    """A curve over thousands of systems needs only their number."""
    tree = Tree(num_nodes, fan_out)
    assert tree.num_switches == len(tree.switches)


@pytest.mark.parametrize(
    ("num_nodes", "fan_out", "depth", "num_switches"),
    [(1, 4, 1, 1), (4, 4, 1, 1), (5, 4, 2, 3), (16, 4, 2, 5), (17, 4, 3, 8), (2048, 4, 6, 683)],
)
def test_tree_has_the_least_depth(
    num_nodes: int, fan_out: int, depth: int, num_switches: int
) -> None:
    """Node count grows linearly in the number of systems and depth with its logarithm."""
    tree = Tree(num_nodes, fan_out)
    assert (tree.depth, tree.num_switches) == (depth, num_switches)


@pytest.mark.parametrize(("num_nodes", "fan_out"), [(0, 4), (-1, 4), (3, 1)])
def test_impossible_tree_is_refused(num_nodes: int, fan_out: int) -> None:
    """No nodes, or switches that cannot fan out, are a configuration error."""
    with raises(ConfigError, "tree-too-small"):
        Tree(num_nodes, fan_out)


def test_swarmx_node_does_one_1_to_4_or_two_1_to_2() -> None:
    """Six ports carry five or twice three; each of a system's 12 ports has a tree."""
    assert swarmx_nodes(ONE_TO_FOUR, 4) == 12 * 1
    assert swarmx_nodes(TWO_ONE_TO_TWO, 4) == 12 * 3 / 2


@given(trees)
def test_tree_has_linear_switches_and_logarithmic_depth(tree: Tree) -> None:
    """A tree of fan-out f over N systems has at least (N - 1) / (f - 1) switches, at most 2 N."""
    assert (tree.num_nodes - 1) / (tree.fan_out - 1) <= tree.num_switches <= 2 * tree.num_nodes
    assert tree.fan_out ** (tree.depth - 1) <= max(1, tree.num_nodes - 1)
    assert tree.num_nodes <= tree.fan_out**tree.depth


@given(st.integers(1, 100), st.integers(1, 500), st.integers(1, 100))
def test_wider_link_needs_more_swarmx_nodes(
    ports: int, extra_gigabytes: int, num_systems: int
) -> None:
    """There are as many trees as ports that the bandwidth fills."""
    narrow, wide = (
        swarmx_nodes(SwarmXSpec(link_bandwidth_bytes_per_s=rate), num_systems)
        for rate in (ports * 12_500_000_000, ports * 12_500_000_000 + extra_gigabytes * 10**9)
    )
    assert narrow == ports * Tree(num_systems, 4).num_switches < wide


def test_swarmx_of_no_systems_is_refused() -> None:
    """A cluster has at least one system."""
    with raises(ConfigError, "tree-too-small"):
        swarmx_nodes(ONE_TO_FOUR, 0)
