"""The placement that does not know hosts, to compare with: the emulated tree, dealt out in turn.

Until commit 07584fe roles took hosts in the order of their specs, and formed the tree of the
emulated machine. So neighbours of the tree were mostly on different hosts, and each weight crossed
the network once for nearly every system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from appliance.placement.placer import Host, Placement, Placer
from appliance.spec import RuntimeSpec
from swarmx.topology import Tree
from waferstream.core.messages.messages import node_name, server_name, switch_name

_TURNS = tuple(name(0).rstrip("0") for name in (server_name, switch_name, node_name))


@dataclass(frozen=True)
class StarPlacement(Placement):
    """Roles of every kind dealt out to the hosts in turn, but for input workers."""

    @cached_property
    def tree(self) -> Tree:
        return Tree(self.num_systems, self.fan_out)

    def host_of(self, role: str) -> int:
        kind, _, number = role.rpartition("-")
        return int(number) % len(self.hosts) if f"{kind}-" in _TURNS else 0


@dataclass(frozen=True)
class StarPlacer(Placer):
    """Places clusters without regard to hosts."""

    def place(self, num_systems: int) -> StarPlacement:
        placed = super().place(num_systems)
        return StarPlacement(placed.hosts, placed.systems, placed.fan_out, placed.servers)


def star_on(hosts: Sequence[Host], runtime: RuntimeSpec, fan_out: int) -> StarPlacer:
    """Return the placer of a star, in place of ``appliance.ray.hosts.survey.placer_on``."""
    return StarPlacer(tuple(hosts), fan_out, "SPREAD", runtime.server_placement)
