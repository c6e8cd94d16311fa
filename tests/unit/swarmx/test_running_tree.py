"""The tree over several hosts: one switch for each, contiguous nodes below it."""

import pytest

from swarmx.running_tree import HostNodes, HostTree
from waferstream.core.messages.messages import node_name, switch_name

THREE = (
    HostNodes(0, range(2), "A"),
    HostNodes(1, range(2, 4), "A"),
    HostNodes(2, range(4, 6), "B"),
)
FLAT = tuple(HostNodes(each.host, each.nodes) for each in THREE)


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
