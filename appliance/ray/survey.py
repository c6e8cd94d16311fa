"""The hosts of a Ray cluster: who answers, and whether all run the same code.

A host that left without a word counts as alive at Ray for a while, so each is called first: the
kernel of a living host answers at once. Then a task of Ray looks at each host. Its code travels
with it and needs only the standard library, so that it can say what else a host lacks.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from appliance.cores import cores_of_host
from appliance.placement import Host, Placer
from appliance.ray.connection import enter, leave
from appliance.spec import RuntimeSpec
from wsc.core.errors import ClusterJobInitError
from wsc.core.units import MIB, format_bytes

log = logging.getLogger("waferstream")

_GREETING_S = 2.0  # within which a host must answer to be used
_LOOK_S = 0.1  # between two looks at free CPUs
_MANY = 1_000_000  # systems: a private Ray limits none
_RACK = "rack"
_PACKAGES = ("appliance", "csnode", "memoryx", "swarmx", "wsc")
"""The packages whose code computes the weights; it must be equal on all hosts."""

_LEAST_SHARED_BYTES = 64 * MIB
"""Least free space of /dev/shm, where Ray keeps its objects."""


@dataclass(frozen=True)
class Facts:
    """What a host has; empty strings for what it lacks."""

    name: str
    python: str
    torch: str
    code: str  # a digest of the packages
    cores: int
    shared_bytes: int  # free in /dev/shm
    free_bytes: int  # of memory, swap included

    def differences(self, other: Facts) -> list[tuple[str, str, str]]:
        """Return what must be equal and is not: name, own value, the other's value."""
        pairs = (
            ("Python", self.python, other.python),
            ("torch", self.torch, other.torch),
            ("WaferStream's code", self.code, other.code),
        )
        return [pair for pair in pairs if pair[1] != pair[2]]


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
        """Return what places roles on the hosts."""
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
    found = [_host(node, facts[node["NodeID"]], runtime) for node in alive]
    return tuple(sorted(found, key=lambda each: (each.id != own, each.rack, each.address)))


def compare(facts: Mapping[str, Facts], own: str) -> None:
    """Refuse hosts that differ from the host ``own`` in what must be equal.

    Raises:
        ClusterJobInitError: A host has other versions or other code, or no space for Ray's objects.
    """
    for each in facts.values():
        for what, found, expected in each.differences(facts[own]):
            raise ClusterJobInitError(
                f"{what} of a host must be that of the host of the program",
                code="host-differs",
                where=each.name,
                value=found or "not installed",
                rule=expected,
                remedy="install the same versions on every host, or ship the code with runtime_env",
            )
        if each.shared_bytes < _LEAST_SHARED_BYTES:
            raise ClusterJobInitError(
                "a host has too little space in /dev/shm",
                code="host-without-shared-memory",
                where=each.name,
                value=f"{format_bytes(each.shared_bytes)} are free",
                rule=f"at least {format_bytes(_LEAST_SHARED_BYTES)}",
                remedy="free /dev/shm there, or give the container more of it",
            )


def silent_hosts(hosts: Collection[str], timeout_s: float = _GREETING_S) -> set[str]:
    """Return the hosts, by Ray's id, that have left the cluster or do not answer any more."""
    if not hosts:
        return set()
    nodes = [node for node in ray.nodes() if node["NodeID"] in hosts and node["Alive"]]
    with ThreadPoolExecutor(len(hosts)) as pool:
        answers = list(pool.map(lambda node: _answers(node, timeout_s), nodes))
    return set(hosts) - {n["NodeID"] for n, answer in zip(nodes, answers, strict=True) if answer}


def _answers(node: Mapping[str, Any], timeout_s: float = _GREETING_S) -> bool:
    """Return whether the kernel of a host accepts a connection to its Ray."""
    place = (node["NodeManagerAddress"], node["NodeManagerPort"])
    try:
        socket.create_connection(place, timeout=timeout_s).close()
    except OSError:
        return False
    return True


def _facts(nodes: Sequence[Mapping[str, Any]], timeout_s: float) -> dict[str, Facts]:
    """Return the facts of each host by its id.

    Raises:
        ClusterJobInitError: A host does not answer in time, or cannot run Python code at all.
    """
    look = _portable_look()
    asked: dict[Any, Mapping[str, Any]] = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": there, "max_retries": 0}
        asked[ray.remote(**options)(look).remote(_PACKAGES)] = node
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s)
    if late:
        raise ClusterJobInitError(
            "a host does not start a task of Ray",
            code="host-not-answering",
            where=", ".join(_address(asked[future]) for future in late),
            rule=f"runtime.start_timeout_s: {timeout_s:g}",
            remedy="look at Ray's logs there, or remove the host from the Ray cluster",
        )
    return {asked[future]["NodeID"]: _answer(future, asked[future]) for future in done}


def _answer(future: Any, node: Mapping[str, Any]) -> Facts:
    try:
        name, python, torch, code, cores, shared_bytes, free_bytes = ray.get(future)
    except RayError as error:
        raise ClusterJobInitError(
            "a host cannot run a task of Ray",
            code="host-not-usable",
            where=_address(node),
            value=str(error).splitlines()[-1],
        ) from error
    shown = f"{name} ({_address(node)})"
    return Facts(shown, python, torch, code, int(cores), int(shared_bytes), int(free_bytes))


def _host(node: Mapping[str, Any], facts: Facts, runtime: RuntimeSpec) -> Host:
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


def _address(node: Mapping[str, Any]) -> str:
    return str(node["NodeManagerAddress"])


def _portable_look() -> Callable[[Sequence[str]], tuple[str | int, ...]]:
    """Return a function that Ray sends with its code, since a host may lack this module."""

    def look(packages: Sequence[str]) -> tuple[str | int, ...]:
        import hashlib  # noqa: PLC0415
        import os  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import shutil  # noqa: PLC0415
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        digest, missing = hashlib.sha256(), False
        for package in packages:
            found = find_spec(package)
            if found is None or found.origin is None:
                missing = True
                continue
            folder = Path(found.origin).parent
            for path in sorted(folder.rglob("*.py")):
                digest.update(f"{package}/{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
        lines = Path("/proc/meminfo").read_text().splitlines()
        memory = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = ""
        return (
            platform.node(),
            platform.python_version(),
            torch,
            "" if missing else digest.hexdigest()[:16],
            len(os.sched_getaffinity(0)),
            shutil.disk_usage("/dev/shm").free,
            sum(memory[name] for name in ("MemAvailable", "SwapFree")) * 1024,
        )

    return look
