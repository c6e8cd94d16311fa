"""Which role runs on which host, and what GPUs the hosts give to systems.

Systems take the hosts one after the other in contiguous runs, each below the switch of its host
(``swarmx.topology``). Coordinator, root of the tree and input workers are where the user's program
is: its folders are there, and checkpoints are written by nobody else. So are weight servers and
activation servers, unless they are spread.

The systems of a host take its GPUs in turn (csnode.devices.cuda). Actors ask Ray for no GPU, since
Ray would give one to an actor alone; Ray 2.60 hides no GPU from an actor that asks for none.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Literal

from appliance.spec import RuntimeSpec, ServerStrategy, Strategy
from csnode.devices import DeviceName
from csnode.devices.cuda import memory_of_gpus, num_gpus
from csnode.node import NodeSpec
from swarmx.topology import HostNodes, HostTree, Tree
from waferstream.core.errors import ClusterJobInitError
from waferstream.core.roles.names import (
    COORDINATOR,
    activation_server_name,
    node_name,
    replica_name,
    server_name,
    switch_name,
    worker_name,
)
from waferstream.core.roles.role import RoleSpec

MOST_PER_GPU = 8
"""Systems that may share a GPU: each has a process, whose CUDA context takes memory there (about
half a GB)."""


@dataclass(frozen=True)
class Host:
    """A host: its id at Ray, its address, the systems that it can take, its cores, its rack.

    ``free_bytes`` is the memory that was free when it was asked, swap included, and ``gpus`` what
    Ray counts; both None if unknown.
    """

    id: str
    address: str
    capacity: int
    cores: int = 1
    rack: str = ""
    free_bytes: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Placement:
    """The hosts of all roles of a cluster, as indices of ``hosts``.

    ``systems`` has the run of systems of each host, empty where it has none.
    """

    hosts: tuple[Host, ...]
    systems: tuple[range, ...]
    fan_out: int
    servers: ServerStrategy

    @cached_property
    def tree(self) -> Tree | HostTree:
        """The tree that the roles form; on one host that of the emulated machine."""
        used = [index for index, run in enumerate(self.systems) if run]
        if used in ([], [0]):
            return Tree(self.num_systems, self.fan_out)
        nodes = (HostNodes(i, self.systems[i], self.hosts[i].rack) for i in used)
        return HostTree(0, tuple(nodes))

    @property
    def num_systems(self) -> int:
        return sum(map(len, self.systems))

    @property
    def num_hosts(self) -> int:
        """Hosts that have a role."""
        return max(1, sum(bool(run) for run in self.systems[1:]) + 1)

    def lanes_of(self, system: int) -> int:
        """Return the micro-batches side by side on a node, so that its host's cores are busy."""
        host = self._host_of_system[system]
        return max(1, self.hosts[host].cores // len(self.systems[host]))

    def with_lanes(self, roles: Iterable[RoleSpec]) -> tuple[RoleSpec, ...]:
        """Return specs of roles in which each node has the lanes of its host."""
        return tuple(
            replace(role, lanes=self.lanes_of(role.index)) if isinstance(role, NodeSpec) else role
            for role in roles
        )

    def host_of(self, role: str) -> int:
        """Return the host of a role by its name; of an unknown one, that of the user's program."""
        kind, _, number = role.rpartition("-")
        if not number.isdecimal():
            return 0
        index = int(number)
        if kind == _kind(node_name(0)):
            return self._host_of_system[index]
        if kind == _kind(switch_name(0)):
            tree = self.tree
            return tree.host_of_switch[index] if isinstance(tree, HostTree) else 0
        if self.servers == "SPREAD" and kind in map(_kind, _SERVERS):
            return self._server_hosts[index % len(self._server_hosts)]
        if self.servers == "SPREAD" and kind == _kind(replica_name(0)):
            return self._server_hosts[(index + 1) % len(self._server_hosts)]
        return 0

    def roles(
        self, num_servers: int, num_workers: int, num_activation_servers: int = 0
    ) -> Mapping[str, list[str]]:
        """Return the names of the roles of each host, by its address."""
        switches = len(self.tree.switches)
        names = [
            COORDINATOR,
            *map(server_name, range(num_servers)),
            *map(switch_name, range(switches)),
            *map(node_name, range(self.num_systems)),
            *map(worker_name, range(num_workers)),
            *map(activation_server_name, range(num_activation_servers)),
        ]
        table: dict[str, list[str]] = {host.address: [] for host in self.hosts}
        for name in names:
            table[self.hosts[self.host_of(name)].address].append(name)
        return table

    @cached_property
    def _host_of_system(self) -> tuple[int, ...]:
        return tuple(index for index, run in enumerate(self.systems) for _ in run)

    @cached_property
    def _server_hosts(self) -> tuple[int, ...]:
        return (0, *(index for index, run in enumerate(self.systems) if run and index))


@dataclass(frozen=True)
class Placer:
    """Places clusters of any number of systems on the same hosts, that of the program first."""

    hosts: tuple[Host, ...]
    fan_out: int = 4
    strategy: Strategy = "PACK"
    servers: ServerStrategy = "PACK"

    def place(self, num_systems: int) -> Placement:
        """Return where the roles of a cluster run.

        Raises:
            ClusterJobInitError: The hosts are too few, or too small, for the strategy.
        """
        capacity = sum(host.capacity for host in self.hosts)
        if num_systems > capacity:
            raise self._refusal(num_systems, capacity, "too-few-cpus")
        counts = self._counts(num_systems)
        if sum(counts) < num_systems:
            raise self._refusal(num_systems, capacity, "too-few-hosts")
        bounds = pairwise(accumulate(counts, initial=0))
        systems = tuple(range(start, stop) for start, stop in bounds)
        return Placement(self.hosts, systems, self.fan_out, self.servers)

    def most(self, num_systems: int) -> int:
        """Return how many of so many systems the hosts can take; 0 if none."""
        largest = min(num_systems, sum(host.capacity for host in self.hosts))
        sizes = range(largest, 0, -1)
        return next((size for size in sizes if sum(self._counts(size)) == size), 0)

    def _counts(self, num_systems: int) -> list[int]:
        """Return the number of systems of each host."""
        count = {
            "PACK": self._packed,
            "SPREAD": self._spread,
            "STRICT_PACK": self._together,
            "STRICT_SPREAD": self._one_each,
        }
        return count[self.strategy](num_systems)

    def _packed(self, left: int) -> list[int]:
        counts = []
        for host in self.hosts:
            counts.append(min(left, host.capacity))
            left -= counts[-1]
        return counts

    def _spread(self, num_systems: int) -> list[int]:
        counts = [0] * len(self.hosts)
        emptiest = [(0, index) for index, host in enumerate(self.hosts) if host.capacity]
        for _ in range(num_systems):
            count, index = heapq.heappop(emptiest)
            counts[index] = count + 1
            if counts[index] < self.hosts[index].capacity:
                heapq.heappush(emptiest, (counts[index], index))
        return counts

    def _together(self, num_systems: int) -> list[int]:
        first = next((h for h in self.hosts if h.capacity >= num_systems), None)
        return [num_systems if host is first else 0 for host in self.hosts]

    def _one_each(self, num_systems: int) -> list[int]:
        counts: list[int] = []
        for host in self.hosts:
            counts.append(min(1, host.capacity, num_systems - sum(counts)))
        return counts

    def _refusal(self, num_systems: int, capacity: int, code: str) -> ClusterJobInitError:
        return ClusterJobInitError(
            "the hosts of the Ray cluster cannot take all systems",
            code=code,
            where=", ".join(f"{host.address}: {host.capacity}" for host in self.hosts),
            value=f"{num_systems} systems, {capacity} CPUs on {len(self.hosts)} hosts",
            rule=f"{num_systems} CPUs, placed {self.strategy}: one for each CS system",
            remedy="lower num_csx, change runtime.placement, or add hosts",
        )


def _kind(name: str) -> str:
    return name.rpartition("-")[0]


_SERVERS = (server_name(0), activation_server_name(0))
"""One role of each kind that ``runtime.server_placement`` spreads."""


def check_gpus(device: DeviceName, num_systems: int) -> None:
    """Check that this host has the GPUs for its systems.

    Raises:
        ClusterJobInitError: It has none, or too few.
    """
    if device == "cuda":
        _check("this host", num_systems, num_gpus())


def check_gpus_of_hosts(device: DeviceName, placement: Placement) -> None:
    """Check that each host of a placement has the GPUs for its systems, as far as it is known.

    Raises:
        ClusterJobInitError: A host has none, or too few.
    """
    if device == "cuda":
        for host, systems in zip(placement.hosts, placement.systems, strict=True):
            if systems and host.gpus is not None:
                _check(f"host {host.address}", len(systems), host.gpus)


def bytes_of_activations(runtime: RuntimeSpec, num_systems: int) -> int | Literal["auto"]:
    """Return the bytes of a host that activations may take: half of its GPUs where they are there.

    ``auto`` is left to the memory of the host.
    """
    if runtime.device == "cpu" or runtime.activation_memory != "auto":
        return runtime.activation_memory
    return sum(memory_of_gpus()[:num_systems]) // 2


def _check(where: str, num_systems: int, gpus: int) -> None:
    if num_systems > gpus * MOST_PER_GPU:
        raise ClusterJobInitError(
            "systems with runtime.device: cuda must have a GPU",
            code="too-few-gpus",
            where=where,
            value=f"{num_systems} systems, {gpus} GPUs",
            rule=f"torch sees a GPU for every {MOST_PER_GPU} systems of a host",
            remedy="lower num_csx, install a torch with CUDA, or set runtime.device: cpu",
        )
