"""The three ways a link fails, worded alike by every link."""

from __future__ import annotations

from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError


def peer_gone(room: str, peer: str) -> ApplianceRuntimeServerError:
    """``peer`` closed its end or its process died."""
    return ApplianceRuntimeServerError(f"{room} lost its link to {peer}", where=room, value=peer)


def unreachable(room: str, peer: str, timeout_s: float) -> ApplianceRuntimeServerError:
    """``peer`` never began to listen."""
    return ApplianceRuntimeServerError(
        f"{room} cannot reach {peer}", where=room, rule=f"a room listens within {timeout_s:g} s"
    )


def unknown_room(room: str, peer: str) -> ApplianceRuntimeServerError:
    """``peer`` is in no directory that ``room`` was given."""
    return ApplianceRuntimeServerError(
        f"{room} knows no room {peer!r}", where=room, rule="connect() names every room sent to"
    )


def stalled(room: str, timeout_s: float) -> ApplianceDeadlockError:
    """Nothing moved for longer than the time limit."""
    return ApplianceDeadlockError(
        f"{room} waited in vain for a message",
        where=room,
        rule=f"a message moves within {timeout_s:g} s",
        remedy="raise runtime.stall_timeout_s in cluster.yaml if a room computes longer than that",
    )
