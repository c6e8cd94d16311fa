"""The mailbox of a role: the protocol that every link implements, and the errors it raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError
from wsc.core.messages import Envelope


class Endpoint(Protocol):
    """One role's mailbox: ordered, reliable, addressed by role name."""

    name: str
    address: str
    """Where peers reach this role."""

    def connect(self, directory: Mapping[str, str]) -> None:
        """Record the address of every role that will be sent to, by role name."""

    def send(self, envelope: Envelope) -> None:
        """Send a message; return before it is read.

        Raises:
            ApplianceRuntimeServerError: The target is gone.
        """

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message in order of arrival; one sender's messages keep their order.

        Raises:
            ApplianceRuntimeServerError: A peer died.
            ApplianceDeadlockError: No message arrived within ``timeout_s``.
        """

    def close(self) -> None:
        """Close for good; peers notice."""


def peer_gone(role: str, peer: str) -> ApplianceRuntimeServerError:
    """Return the error for a peer that closed its end or whose process died."""
    return ApplianceRuntimeServerError(
        f"{role} lost its link to {peer}", code="peer-gone", where=role, value=peer
    )


def unreachable(role: str, peer: str, timeout_s: float) -> ApplianceRuntimeServerError:
    """Return the error for a peer that never began to listen."""
    return ApplianceRuntimeServerError(
        f"{role} cannot reach {peer}",
        code="peer-unreachable",
        where=role,
        value=peer,
        rule=f"a role listens within {timeout_s:g} s",
    )


def unknown_role(role: str, peer: str) -> ApplianceRuntimeServerError:
    """Return the error for a peer that is in no directory given to ``connect``."""
    return ApplianceRuntimeServerError(
        f"{role} knows no role {peer!r}",
        code="unknown-role",
        where=role,
        value=peer,
        rule="connect() names every role that is sent to",
    )


def stalled(role: str, timeout_s: float) -> ApplianceDeadlockError:
    """Return the error for a link on which nothing moved for longer than the time limit."""
    return ApplianceDeadlockError(
        f"{role} waited in vain for a message",
        code="link-stalled",
        where=role,
        rule=f"a message moves within {timeout_s:g} s",
        remedy="raise runtime.stall_timeout_s in cluster.yaml if a role computes longer than that",
    )
