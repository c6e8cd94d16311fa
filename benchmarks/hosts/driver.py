"""A training on request, on one of several hosts: ``python -m benchmarks.hosts.driver JSON``.

The order comes as JSON, see ``Order``. Each line of standard input is a number of steps; when they
are done, a line of standard output has their seconds. The end of the input ends the training.

To compare with, there is a placement that does not know hosts: the emulated tree, dealt out in
turn. Until commit 07584fe roles took hosts in the order of their specs, and formed the tree of the
emulated machine. So neighbours of the tree were mostly on different hosts, and each weight crossed
the network once for nearly every system.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from unittest.mock import patch

import cstorch
from appliance.placement.placer import Host, Placement, Placer
from appliance.ray import starter
from appliance.spec import RuntimeSpec
from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.workload import Workload
from swarmx.topology import Tree
from waferstream.core.config import Config
from waferstream.core.roles.names import node_name, server_name, switch_name

DONE = "done"
"""First word of the lines that answer; others are logs."""


class Order(Config):
    """What to train, and where."""

    runtime: RuntimeSpec
    num_csx: int
    hidden: int
    layers: int
    vocab: int
    sequence_length: int
    num_micro_batches: int
    """Micro-batches of one sample in a step."""

    is_star: bool = False
    """Whether roles are placed and connected as before there was a switch for each host."""

    @property
    def workload(self) -> Workload:
        """The training; all cores of a host may compute."""
        return Workload(
            hidden=self.hidden,
            layers=self.layers,
            vocab=self.vocab,
            sequence_length=self.sequence_length,
            batch_size=self.num_micro_batches,
            precision="fp32",
            cores=1,
        )


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


def main() -> None:
    """Train as many steps as each line of the input says."""
    order = Order.model_validate_json(sys.argv[1])
    cstorch.backends.csx.performance.micro_batch_size = 1
    with ExitStack() as stack:
        if order.is_star:
            stack.enter_context(patch.object(starter, "placer_on", star_on))
        run = stack.enter_context(
            open_cluster(order.workload, order.num_csx, runtime=order.runtime)
        )
        for line in sys.stdin:
            begin = perf_counter()
            run(int(line))
            print(DONE, perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
