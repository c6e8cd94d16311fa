"""The three ways a link fails, worded alike by every link."""

from __future__ import annotations

from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError


def peer_gone(role: str, peer: str) -> ApplianceRuntimeServerError:
    """``peer`` closed its end or its process died."""
    return ApplianceRuntimeServerError(f"{role} lost its link to {peer}", where=role, value=peer)


def unreachable(role: str, peer: str, timeout_s: float) -> ApplianceRuntimeServerError:
    """``peer`` never began to listen."""
    return ApplianceRuntimeServerError(
        f"{role} cannot reach {peer}", where=role, rule=f"a role listens within {timeout_s:g} s"
    )


def unknown_role(role: str, peer: str) -> ApplianceRuntimeServerError:
    """``peer`` is in no directory that ``role`` was given."""
    return ApplianceRuntimeServerError(
        f"{role} knows no role {peer!r}", where=role, rule="connect() names every role sent to"
    )


def stalled(role: str, timeout_s: float) -> ApplianceDeadlockError:
    """Nothing moved for longer than the time limit."""
    return ApplianceDeadlockError(
        f"{role} waited in vain for a message",
        where=role,
        rule=f"a message moves within {timeout_s:g} s",
        remedy="raise runtime.stall_timeout_s in cluster.yaml if a role computes longer than that",
    )
