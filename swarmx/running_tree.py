"""The tree that roles really form on several hosts: a switch for each host, its nodes below it.

The emulated tree (``swarmx.topology.Tree``) says how long a step takes; this one says which process
sends what to whom. Sums follow the reduce order of the micro-batches on either of them, so the
bits of the weights do not depend on it. Each weight crosses the wire of a host once in a pass, and
each gradient leaves a host once for each subtree of its micro-batches.

    two hosts in rack A, one in rack B, 6 nodes        br-0
                                                      /    \\
                                                  br-1      br-2
                                                 /    \\       |
                                             br-3    br-4   br-5
                                             0 1     2 3    4 5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from swarmx.topology import TreeSwitch
from waferstream.core.messages.messages import node_name, switch_name


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
