"""The mailbox of a role: the protocol that every link implements, and the errors it raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceDeadlockError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
)
from waferstream.core.messages.messages import Envelope
from waferstream.core.units import GIB


class Address(NamedTuple):
    """Where a role is reached, and how its peers know that it is this role."""

    place: str

    identity: str
    """Public: the number of the process on one host, a certificate on a network."""

    host: str = ""
    """The host on which ``place`` can be reached, if it cannot from others."""

    far: Address | None = None
    """Where roles of other hosts reach this one."""


PAYLOAD_LIMIT_BYTES = 1 * GIB
"""Largest payload that an endpoint takes before ``limit_payloads``."""


MOST_WAITING = 1 << 16
"""Most messages that wait in a queue of an endpoint. Credits keep it at a few hundred."""


class Endpoint(Protocol):
    """One role's mailbox: ordered, reliable, addressed by role name."""

    name: str
    address: Address
    """Where peers reach this role."""

    @property
    def refused(self) -> int:
        """Connections so far that were not from a role of the directory."""

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Record the address of every peer, by role name; others are refused.

        Roles of one process share an address in shared memory: their messages come to one mailbox.
        """

    def limit_payloads(self, num_bytes: int) -> None:
        """Refuse payloads of more than ``num_bytes`` from now on."""

    def send(self, envelope: Envelope) -> None:
        """Send a message; return before it is read.

        Raises:
            ApplianceRuntimeServerError: The target is gone.
        """

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message in order of arrival; one sender's messages keep their order.

        Raises:
            ApplianceRuntimeServerError: A peer died.
            ApplianceCorruptionError: A peer sent what is no message.
            ApplianceDeadlockError: No message arrived within ``timeout_s``.
            ApplianceResourceExhausted: More than MOST_WAITING messages have arrived and wait.
        """

    def num_waiting(self) -> int:
        """Return how many messages have arrived that nobody has received yet.

        Raises:
            ApplianceCorruptionError: A peer sent what is no message.
        """

    def close(self) -> None:
        """Close for good; peers notice."""


def cannot_listen(place: str, reason: object, rule: str | None = None) -> ClusterJobInitError:
    """Return the error for a place at which a role cannot listen."""
    return ClusterJobInitError(
        "a role cannot listen",
        code="address-unavailable",
        where=place,
        value=reason,
        rule=rule,
    )


def peer_gone(role: str, peer: str) -> ApplianceRuntimeServerError:
    """Return the error for a peer that closed its end or whose process died."""
    return ApplianceRuntimeServerError(
        f"{role} lost its link to {peer}", code="peer-gone", where=role, value=peer
    )


def not_authentic(role: str, peer: str, found: object) -> ApplianceRuntimeServerError:
    """Return the error for a listener at a peer's address that is not this peer."""
    return ApplianceRuntimeServerError(
        f"{role} does not find {peer} at its address",
        code="peer-not-authentic",
        where=role,
        value=f"{peer}: {found}",
        rule="the process at an address is the one that the directory names",
    )


def refused(role: str, peer: str, reason: str) -> ApplianceRuntimeServerError:
    """Return the error for a peer that does not take messages of this role."""
    return ApplianceRuntimeServerError(
        f"{peer} refuses the messages of {role}",
        code="peer-refuses",
        where=role,
        value=f"{peer}: {reason}",
        rule="all roles of a cluster run one version of WaferStream, in one session",
    )


def damaged(role: str, peer: str, reason: object) -> ApplianceCorruptionError:
    """Return the error for bytes of a peer that are no message."""
    return ApplianceCorruptionError(
        f"{role} received a damaged message",
        code="message-damaged",
        where=role,
        value=f"from {peer}: {reason}",
    )


def queue_full(role: str, peer: str) -> ApplianceResourceExhausted:
    """Return the error for a queue of messages that nobody takes."""
    return ApplianceResourceExhausted(
        f"too many messages wait at {role}",
        code="queue-full",
        where=role,
        value=f"the last one is of {peer}",
        rule=f"at most {MOST_WAITING} messages wait: credits limit what a role sends",
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


def stalled_peer(role: str, peer: str, timeout_s: float) -> ApplianceDeadlockError:
    """Return the error for a peer that neither reads nor ends, or that stops within a message."""
    return ApplianceDeadlockError(
        f"{role} waits in vain for {peer} on their link",
        code="link-stalled",
        where=role,
        value=peer,
        rule=f"a message moves within {timeout_s:g} s",
    )


def no_memory(role: str, peer: str, reason: object) -> ApplianceResourceExhausted:
    """Return the error for a payload that has no room here."""
    return ApplianceResourceExhausted(
        f"{role} has no memory for a payload",
        code="no-memory-for-payload",
        where=role,
        value=f"from {peer}: {reason}",
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


def aborted(role: str) -> ApplianceRuntimeServerError:
    """Return the error for a role that was asked to end its job."""
    return ApplianceRuntimeServerError(
        f"{role} was asked to end its job",
        code="job-aborted",
        where=role,
        rule="a job ends on every role when one of them fails",
    )
