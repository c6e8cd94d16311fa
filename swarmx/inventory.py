"""How many SwarmX nodes a cluster takes.

A system's link is as many ports wide as its bandwidth takes, and each port is served by a tree of
its own. The switches of all trees are packed into nodes: a node of six ports does one 1:4
broadcast-reduce (five ports) or two 1:2 (three each). Nodes grow in proportion to the systems,
latency with their logarithm (vendor glossary).

The one published count is lower than this one: 8 nodes for 4 systems, where twelve trees of one
1:4 switch take 12. How many ports that site connects is not published.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.topology import Tree
from timing.hardware import SwarmXSpec


@dataclass(frozen=True)
class Inventory:
    """The SwarmX part of a cluster."""

    trees: int  # ports of a system
    switches_per_tree: int
    switches_per_node: int
    depth: int  # switches on the way from MemoryX to a system
    latency_ps: int  # one way

    @property
    def num_nodes(self) -> int:
        return -(-self.trees * self.switches_per_tree // self.switches_per_node)


def inventory(spec: SwarmXSpec, num_systems: int) -> Inventory:
    """What ``num_systems`` CS systems need; ConfigError if there are none."""
    tree = Tree(num_systems, spec.fan_out)
    return Inventory(
        trees=-(-spec.link_bandwidth_bytes_per_s // spec.port_bandwidth_bytes_per_s),
        switches_per_tree=tree.num_switches,
        switches_per_node=spec.node_ports // (spec.fan_out + 1),
        depth=tree.depth,
        latency_ps=tree.depth * spec.hop_latency_ps,
    )
