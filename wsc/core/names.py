"""Names of the roles, as they appear in logs, actors and envelopes (cluster_interface.md, 4.1)."""

from __future__ import annotations


def server_name(index: int) -> str:
    """A weight server of MemoryX."""
    return f"wgt-{index}"


def switch_name(index: int) -> str:
    """A broadcast-reduce node of SwarmX."""
    return f"br-{index}"


def node_name(index: int) -> str:
    """A CS system."""
    return f"csx-{index}"


def worker_name(index: int) -> str:
    """An input worker."""
    return f"wrk-{index}"


COORDINATOR = "crd-0"
