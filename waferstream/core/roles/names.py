"""The names of roles: the task types of cerebras_appliance 2.10, numbered."""

from __future__ import annotations

COORDINATOR = "crd-0"


def server_name(index: int) -> str:
    """Return the name of a weight server of MemoryX."""
    return f"wgt-{index}"


def is_server(name: str) -> bool:
    """Return whether a role is a weight server of MemoryX."""
    return name.startswith("wgt-")


def replica_name(index: int) -> str:
    """Return the name of the replica of a weight server."""
    return f"rpl-{index}"


def switch_name(index: int) -> str:
    """Return the name of a broadcast-reduce switch of SwarmX."""
    return f"br-{index}"


def node_name(index: int) -> str:
    """Return the name of a CS system."""
    return f"csx-{index}"


def worker_name(index: int) -> str:
    """Return the name of an input worker."""
    return f"wrk-{index}"


def activation_server_name(index: int) -> str:
    """Return the name of an activation server."""
    return f"act-{index}"


def index_of(role: str) -> int:
    """Return the index in the name of a role."""
    return int(role.rpartition("-")[2])
