"""The broadcast/reduce tree: one path per node, even shares, bounded fan-out; SwarmX nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.topology import HostNodes, HostTree, Tree, swarmx_nodes
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.roles.names import node_name, switch_name
from waferstream.machine.hardware import SwarmXSpec

ONE_TO_FOUR = SwarmXSpec()
TWO_ONE_TO_TWO = SwarmXSpec(fan_out=2)

trees = st.builds(Tree, num_nodes=st.integers(1, 300), fan_out=st.integers(2, 9))

THREE = (
    HostNodes(0, range(2), "A"),
    HostNodes(1, range(2, 4), "A"),
    HostNodes(2, range(4, 6), "B"),
)
FLAT = tuple(HostNodes(each.host, each.nodes) for each in THREE)


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


def test_each_host_has_one_switch_below_the_root() -> None:
    tree = HostTree(0, FLAT)
    assert [switch.children for switch in tree.switches] == [
        ("br-1", "br-2", "br-3"),
        ("csx-0", "csx-1"),
        ("csx-2", "csx-3"),
        ("csx-4", "csx-5"),
    ]
    assert tree.host_of_switch == (0, 0, 1, 2)


def test_hosts_of_a_rack_share_a_switch() -> None:
    tree = HostTree(0, THREE)
    assert [switch.children for switch in tree.switches[:3]] == [
        ("br-1", "br-2"),
        ("br-3", "br-4"),
        ("br-5",),
    ]
    assert tree.host_of_switch == (0, 0, 2, 0, 1, 2)


@pytest.mark.parametrize("hosts", [FLAT, THREE, (HostNodes(3, range(5)),)])
def test_every_child_knows_its_parent(hosts: tuple[HostNodes, ...]) -> None:
    """Parents, children and the nodes below agree, and the nodes below are contiguous."""
    tree = HostTree(0, hosts)
    by_name = {switch.name: switch for switch in tree.switches}
    for switch in tree.switches:
        below = [by_name[child].nodes for child in switch.children if child in by_name]
        own = [node_name(node) for node in switch.nodes]
        assert own == ([node_name(n) for nodes in below for n in nodes] or list(switch.children))
        if switch.parent is not None:
            assert switch.name in tree.switches[switch.parent].children
    for node in range(hosts[-1].nodes.stop):
        assert node_name(node) in by_name[switch_name(tree.parent_of(node))].children
