"""Limits of the memory of each role, checked before a program is installed."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping

from appliance.elaboration.elaborate import ClusterSize
from appliance.elaboration.host_need import HostNeed, bytes_away, weight_needs
from appliance.input.input_worker import WorkerSpec
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages.payload import payload_bytes
from waferstream.core.roles.installation import Installation
from waferstream.core.units import KIB, format_bytes


def check_roles(installation: Installation, size: ClusterSize, limits: Mapping[str, int]) -> None:
    """Check that no role needs more memory than its limit.

    Args:
        installation: What the roles will get.
        size: Their numbers.
        limits: Bytes by the flag that sets them (``wgt_memory_gi``).

    Raises:
        ApplianceResourceExhausted: A role does.
    """
    for flag, need_bytes, remedy in _needs(installation, size) if limits else ():
        if need_bytes > limits.get(flag, need_bytes):
            raise ApplianceResourceExhausted(
                f"{_ROLES[flag]} needs more memory than its limit",
                code="role-exceeds-memory-limit",
                where=f"csx.debug.{flag}",
                value=f"at least {format_bytes(need_bytes)}",
                rule=f"{format_bytes(limits[flag])}",
                remedy=remedy,
            )


_ROLES = {
    "compile_crd_memory_gi": "the process that compiles",
    "execute_crd_memory_gi": "the process that coordinates",
    "wgt_memory_gi": "a weight server",
    "act_memory_gi": "an activation server",
    "wrk_memory_gi": "an input worker",
}


def _needs(installation: Installation, size: ClusterSize) -> Iterator[tuple[str, int, str]]:
    """Yield flag, bytes that a role needs at least, and what lowers them, of each role."""
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    yield "compile_crd_memory_gi", peak_bytes, _HIGHER
    yield "execute_crd_memory_gi", peak_bytes, _HIGHER
    yield "wgt_memory_gi", _of_server(installation, size), f"more num_wgt_servers, or {_HIGHER}"
    if num_servers := installation.trips.num_servers:
        away = bytes_away(installation.program, size.num_csx, size.lanes, installation.trips.all)
        yield "act_memory_gi", -(-away // num_servers), f"more num_act_servers, or {_HIGHER}"
    yield "wrk_memory_gi", _of_worker(installation, size), f"a smaller batch, or {_HIGHER}"


_HIGHER = "a higher limit"


def _of_server(installation: Installation, size: ClusterSize) -> int:
    """Return the bytes of one of the weight servers, on the average."""
    whole = weight_needs(installation, size)
    return -(-HostNeed(whole.training, whole.loading).total // size.num_servers)


def _of_worker(installation: Installation, size: ClusterSize) -> int:
    """Return the bytes of a global batch, and of the micro-batches that wait at the nodes."""
    program, ahead = installation.program, WorkerSpec.prefetch * installation.rounds.per_node
    waiting = -(-size.num_csx // size.num_workers) * ahead
    return (program.num_micro_batches + waiting) * payload_bytes(program.inputs_of(0))
