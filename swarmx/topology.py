"""The broadcast/reduce trees between MemoryX and the CS systems, emulated and running.

Every switch copies messages from its parent to all children, and adds messages from its children;
a SwarmX node does so for up to four children (Lie, Hot Chips 34). All systems are at the
same depth; each switch has a contiguous run of them below it, divided evenly among its children.
All streams pass SwarmX, so even a single system has one switch above it.

    fan_out 4, 6 nodes        br-0
                             /    \\
                         br-1      br-2
                        / | \\     / | \\
                       0  1  2    3  4  5

``Tree`` says how long a step takes. On several hosts roles form another tree, which says which
process sends what to whom: a switch for each host, its nodes below it. Sums follow the reduce order
of the micro-batches on either of them, so the bits of the weights do not depend on it. Each weight
crosses the wire of a host once in a pass, and each gradient leaves a host once for each subtree of
its micro-batches.

    two hosts in rack A, one in rack B, 6 nodes        br-0
                                                      /    \\
                                                  br-1      br-2
                                                 /    \\       |
                                             br-3    br-4   br-5
                                             0 1     2 3    4 5
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from waferstream.core.errors import ConfigError
from waferstream.core.roles.names import node_name, switch_name
from waferstream.core.user_code import import_derived
from waferstream.machine.hardware import SwarmXSpec
from waferstream.machine.hardware.streams import TREE


@dataclass(frozen=True)
class TreeSwitch:
    """One switch of the tree: its neighbours, and the nodes below it."""

    index: int
    level: int  # the root is level 0
    parent: int | None  # index of the switch above; above the root are the weight servers
    children: tuple[str, ...]  # role names, all switches or all nodes, in node order
    nodes: range

    @property
    def name(self) -> str:
        return switch_name(self.index)


@dataclass(frozen=True)
class Tree:
    """The balanced tree over ``num_nodes`` CS systems.

    Raises:
        ConfigError: There is no system, or the fan-out is below two.
    """

    num_nodes: int
    fan_out: int

    def __post_init__(self) -> None:
        for what, value, least in (
            ("number of CS systems", self.num_nodes, 1),
            ("fan-out of a switch", self.fan_out, 2),
        ):
            if value < least:
                raise ConfigError(
                    f"the {what} is too small",
                    code="tree-too-small",
                    value=value,
                    rule=f"at least {least}",
                )

    @cached_property
    def depth(self) -> int:
        """Number of switches between a weight server and a node; the same for every node."""
        depth = 1
        while self.fan_out**depth < self.num_nodes:
            depth += 1
        return depth

    @cached_property
    def switches(self) -> tuple[TreeSwitch, ...]:
        """All switches in breadth-first order: the root has index 0, siblings are adjacent."""
        switches: list[TreeSwitch] = []
        queue: deque[tuple[int, int | None, range]] = deque([(0, None, range(self.num_nodes))])
        while queue:
            level, parent, nodes = queue.popleft()
            index = len(switches)
            if level == self.depth - 1:
                children = tuple(node_name(node) for node in nodes)
            else:
                nodes_per_child = self.fan_out ** (self.depth - level - 1)
                runs = _divide(nodes, -(-len(nodes) // nodes_per_child))
                first_child = index + 1 + len(queue)
                children = tuple(switch_name(first_child + i) for i in range(len(runs)))
                queue.extend((level + 1, index, run) for run in runs)
            switches.append(TreeSwitch(index, level, parent, children, nodes))
        return tuple(switches)

    @cached_property
    def num_switches(self) -> int:
        """Length of ``switches``, counted level by level without building them."""
        total = 0
        runs = Counter({self.num_nodes: 1})  # nodes below a switch -> number of such switches
        for level in range(self.depth):
            total += runs.total()
            nodes_per_child = self.fan_out ** (self.depth - level - 1)
            below: Counter[int] = Counter()
            for length, count in runs.items():
                for part in _divide(range(length), -(-length // nodes_per_child)):
                    below[len(part)] += count
            runs = below
        return total

    def parent_of(self, node: int) -> int:
        """Return the index of the switch directly above a node."""
        return self._parents[node]

    @cached_property
    def _parents(self) -> tuple[int, ...]:
        leaves = (switch for switch in self.switches if switch.level == self.depth - 1)
        return tuple(switch.index for switch in leaves for _ in switch.nodes)


class Topology(ABC):
    """What connects MemoryX with the systems, other than a tree, as far as it decides the time.

    Derive a class from it, and name it in cluster.yaml: ``machine: {swarmx: {topology:
    my_module:MyTopology}}``. Roles form a tree all the same, so no bit depends on it.
    """

    def __init__(self, num_nodes: int, spec: SwarmXSpec) -> None:
        self.num_nodes = num_nodes
        self.spec = spec

    @property
    @abstractmethod
    def depth(self) -> int:
        """Hops between a weight server and the farthest system, one at least."""

    @property
    @abstractmethod
    def num_switches(self) -> int:
        """Number of switches for one port of the systems."""


def topology_of(spec: SwarmXSpec, num_nodes: int) -> Tree | Topology:
    """Return what connects so many systems.

    Raises:
        ConfigError: There is no system, or the class of a topology is wrong.
    """
    if spec.topology == TREE:
        return Tree(num_nodes, spec.fan_out)
    own: type[Topology] = import_derived(spec.topology, Topology, "machine.swarmx.topology")
    return own(num_nodes, spec)


def swarmx_nodes(spec: SwarmXSpec, num_systems: int) -> int:
    """Return how many SwarmX nodes a cluster of ``num_systems`` CS systems needs.

    A system's link has as many ports as its bandwidth fills, and each port has a tree of its own.
    The switches of all trees are packed into nodes: a node of six ports does one 1:4
    broadcast-reduce (five ports) or two 1:2 (three each). Nodes grow in proportion to the systems
    (vendor glossary).

    The one published count is lower than this one: 8 nodes for 4 systems, where twelve trees of
    one 1:4 switch take 12. How many ports that site connects is not published.

    Raises:
        ConfigError: There is no system.
    """
    trees = -(-spec.link_bandwidth_bytes_per_s // spec.port_bandwidth_bytes_per_s)
    switches_per_node = spec.node_ports // (spec.fan_out + 1)
    return -(-trees * topology_of(spec, num_systems).num_switches // switches_per_node)


def _divide(nodes: range, num_parts: int) -> list[range]:
    """Divide a run of nodes into parts whose sizes differ by at most one."""
    bounds = [nodes.start + len(nodes) * part // num_parts for part in range(num_parts + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


@dataclass(frozen=True)
class HostNodes:
    """The nodes of one host, and the rack in which it stands (empty: unknown)."""

    host: int
    nodes: range
    rack: str = ""


@dataclass(frozen=True)
class HostTree:
    """A root, a switch for each rack if there are several, a switch for each host, its nodes.

    Args:
        root_host: Where the root runs.
        hosts: The hosts that have nodes, in the order of their nodes; those of a rack side by side.
    """

    root_host: int
    hosts: tuple[HostNodes, ...]

    @cached_property
    def _racks(self) -> list[list[HostNodes]]:
        """The hosts of each rack that has a switch; none if all are in one rack."""
        racks = [list(hosts) for _, hosts in groupby(self.hosts, key=lambda each: each.rack)]
        return racks if len(racks) > 1 else []

    @cached_property
    def switches(self) -> tuple[TreeSwitch, ...]:
        """All switches in breadth-first order."""
        middle = range(1, 1 + len(self._racks))
        leaves = range(middle.stop, middle.stop + len(self.hosts))
        below = _names(middle or leaves)
        root = TreeSwitch(0, 0, None, below, _span(self.hosts))
        return (root, *self._rack_switches(leaves), *self._leaves(leaves))

    @cached_property
    def host_of_switch(self) -> tuple[int, ...]:
        """The host of each switch; that of a rack runs on the rack's first host."""
        return (
            self.root_host,
            *(rack[0].host for rack in self._racks),
            *(each.host for each in self.hosts),
        )

    def parent_of(self, node: int) -> int:
        """Return the index of the switch directly above a node."""
        return self._parents[node]

    @cached_property
    def _parents(self) -> tuple[int, ...]:
        leaves = self.switches[-len(self.hosts) :]
        return tuple(switch.index for switch in leaves for _ in switch.nodes)

    def _rack_switches(self, leaves: range) -> list[TreeSwitch]:
        switches, first = [], leaves.start
        for index, rack in enumerate(self._racks, start=1):
            own = range(first, first + len(rack))
            switches.append(TreeSwitch(index, 1, 0, _names(own), _span(rack)))
            first = own.stop
        return switches

    def _leaves(self, leaves: range) -> tuple[TreeSwitch, ...]:
        parents = [index for index, rack in enumerate(self._racks, start=1) for _ in rack]
        return tuple(
            TreeSwitch(
                index,
                2 if parents else 1,
                parents[position] if parents else 0,
                tuple(map(node_name, each.nodes)),
                each.nodes,
            )
            for position, (index, each) in enumerate(zip(leaves, self.hosts, strict=True))
        )


def _names(switches: range) -> tuple[str, ...]:
    return tuple(map(switch_name, switches))


def _span(hosts: Sequence[HostNodes]) -> range:
    return range(hosts[0].nodes.start, hosts[-1].nodes.stop)
