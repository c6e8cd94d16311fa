"""The hosts of a Ray cluster: who answers, and whether all run the same code to the same bits.

A host that left without a word counts as alive at Ray for a while, so each is called first: the
kernel of a living host answers at once. Then a task of Ray looks at each host. Where processors
differ, another task computes fixed values on one host of each kind.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from appliance.placement.cores import cores_of_host
from appliance.placement.placer import Host, Placer
from appliance.ray.connection.connection import enter, leave
from appliance.ray.hosts.host_facts import (
    PACKAGES,
    Facts,
    arithmetic_digest,
    compare,
    compare_arithmetic,
    compare_gpus,
    portable_look,
)
from appliance.spec import RuntimeSpec
from waferstream.core.errors import ClusterJobInitError

log = logging.getLogger("waferstream")

_GREETING_S = 2.0  # within which a host must answer to be used
_LOOK_S = 0.1  # between two looks at free CPUs
_MANY = 1_000_000  # systems: a private Ray limits none
_RACK = "rack"

Node = Mapping[str, Any]
"""What Ray tells of a host."""


class Survey:
    """The connection to Ray and what is known of its hosts, from before the compilation on.

    Args:
        runtime: Where the cluster runs.

    Raises:
        ClusterJobInitError: Ray cannot be joined, or a host does not fit the others.
    """

    def __init__(self, runtime: RuntimeSpec) -> None:
        self._runtime = runtime
        self._owns_ray = enter(runtime)
        try:
            self.hosts = survey(runtime)
        except BaseException:
            self.close()
            raise

    def placer(self, fan_out: int) -> Placer:
        """Return the placer of roles on the hosts."""
        return placer_on(self.hosts, self._runtime, fan_out)

    def close(self) -> None:
        """Leave Ray if it was joined here. Idempotent."""
        if self._owns_ray:
            leave()
            self._owns_ray = False


def placer_on(hosts: Sequence[Host], runtime: RuntimeSpec, fan_out: int) -> Placer:
    """Return the placer of roles on hosts that the configuration asks for."""
    return Placer(tuple(hosts), fan_out, runtime.placement, runtime.server_placement)


def survey(runtime: RuntimeSpec) -> tuple[Host, ...]:
    """Return the hosts of the connected Ray cluster that answer, that of this process first.

    Raises:
        ClusterJobInitError: A host differs from this one in what must be equal.
    """
    own = ray.get_runtime_context().get_node_id()
    if runtime.address == "local":
        return (Host(own, "127.0.0.1", _MANY, cores_of_host(runtime.cores)),)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes = [node for node in nodes if node["NodeID"] == own or node["Resources"].get("CPU")]
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        answers = list(pool.map(_answers, nodes))
    for node, answer in zip(nodes, answers, strict=True):
        if not answer:
            log.warning("Host %s does not answer: the run goes without", _address(node))
    alive = [node for node, answer in zip(nodes, answers, strict=True) if answer]
    facts = _facts(alive, runtime.start_timeout_s)
    compare(facts, own)
    if not runtime.mixed_processors:
        _compare_processors(alive, facts, own, runtime.start_timeout_s)
        if runtime.device == "cuda":
            compare_gpus(facts.values())
    found = [_host(node, facts[node["NodeID"]], runtime) for node in alive]
    return tuple(sorted(found, key=lambda each: (each.id != own, each.rack, each.address)))


def silent_hosts(hosts: Collection[str], timeout_s: float = _GREETING_S) -> set[str]:
    """Return the hosts, by Ray's id, that have left the cluster or do not answer any more."""
    if not hosts:
        return set()
    nodes = [node for node in ray.nodes() if node["NodeID"] in hosts and node["Alive"]]
    with ThreadPoolExecutor(len(hosts)) as pool:
        answers = list(pool.map(lambda node: _answers(node, timeout_s), nodes))
    return set(hosts) - {n["NodeID"] for n, answer in zip(nodes, answers, strict=True) if answer}


def _answers(node: Node, timeout_s: float = _GREETING_S) -> bool:
    """Return whether the kernel of a host accepts a connection to its Ray."""
    place = (node["NodeManagerAddress"], node["NodeManagerPort"])
    try:
        socket.create_connection(place, timeout=timeout_s).close()
    except OSError:
        return False
    return True


def _facts(nodes: Sequence[Node], timeout_s: float) -> dict[str, Facts]:
    """Return the facts of each host by its id."""
    found = _asked(nodes, timeout_s, portable_look(), PACKAGES)
    named = {node["NodeID"]: node for node in nodes}
    return {
        host: Facts(**{**fields, "name": f"{fields['name']} ({_address(named[host])})"})
        for host, fields in found.items()
    }


def _compare_processors(
    nodes: Sequence[Node], facts: Mapping[str, Facts], own: str, timeout_s: float
) -> None:
    """Refuse hosts that compute other bits; processors of one kind compute the same."""
    one_of_each = {facts[node["NodeID"]].processor: node for node in nodes}
    one_of_each |= {facts[own].processor: next(n for n in nodes if n["NodeID"] == own)}
    if len(one_of_each) == 1:
        return
    digests = _asked(list(one_of_each.values()), timeout_s, arithmetic_digest)
    names = {host: f"{facts[host].name}, {facts[host].processor}" for host in digests}
    compare_arithmetic({names[host]: digest for host, digest in digests.items()}, names[own])


def _asked(
    nodes: Sequence[Node], timeout_s: float, question: Callable[..., Any], *arguments: Any
) -> dict[str, Any]:
    """Let each host compute the answer to a question; return the answers by the hosts' ids.

    Raises:
        ClusterJobInitError: A host does not answer in time, or cannot run Python code at all.
    """
    asked: dict[Any, Node] = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": there, "max_retries": 0}
        asked[ray.remote(**options)(question).remote(*arguments)] = node
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s)
    if late:
        for future in late:
            ray.cancel(future, force=True)
        raise ClusterJobInitError(
            "a host does not start a task of Ray",
            code="host-not-answering",
            where=", ".join(_address(asked[future]) for future in late),
            rule=f"runtime.start_timeout_s: {timeout_s:g}",
            remedy="look at Ray's logs there, or remove the host from the Ray cluster",
        )
    return {asked[future]["NodeID"]: _answer(future, asked[future]) for future in done}


def _answer(future: Any, node: Node) -> Any:
    try:
        return ray.get(future)
    except RayError as error:
        raise ClusterJobInitError(
            "a host cannot run a task of Ray",
            code="host-not-usable",
            where=_address(node),
            value=str(error).splitlines()[-1],
        ) from error


def _host(node: Node, facts: Facts, runtime: RuntimeSpec) -> Host:
    cores = facts.cores if runtime.cores == "auto" else runtime.cores
    rack = str(node.get("Labels", {}).get(_RACK, ""))
    capacity = int(node["Resources"].get("CPU", 0))
    gpus = int(node["Resources"].get("GPU", 0))
    return Host(node["NodeID"], _address(node), capacity, cores, rack, facts.free_bytes, gpus)


def with_free_cpus(hosts: Sequence[Host], num_systems: int) -> tuple[Host, ...]:
    """Return hosts with the CPUs that are free now, unless the systems have to wait for others."""
    from ray._private.state import available_resources_per_node  # noqa: PLC0415

    free: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    now = tuple(
        replace(host, capacity=min(host.capacity, int(free.get(host.id, {}).get("CPU", 0))))
        for host in hosts
    )
    return now if sum(host.capacity for host in now) >= num_systems else tuple(hosts)


def await_free_cpus(needed: Mapping[str, int], timeout_s: float) -> None:
    """Wait until so many CPUs of each host are free: Ray frees those of an ended cluster later.

    Hosts that have left the Ray cluster do not count.
    """
    from ray._private.state import available_resources_per_node  # noqa: PLC0415

    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        free: Mapping[str, Mapping[str, float]] = available_resources_per_node()
        if all(free[host].get("CPU", 0) >= needed[host] for host in needed.keys() & free.keys()):
            return
        time.sleep(_LOOK_S)


def _address(node: Node) -> str:
    return str(node["NodeManagerAddress"])
