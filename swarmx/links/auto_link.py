"""Shared memory within a host, TCP between hosts, in one mailbox.

The role listens on both. What arrives over the network is put into the shared memory of the role,
so that a switch hands a payload, which has crossed the wire once, to all roles of its host in
place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from swarmx.links.certificates import Credentials, credentials_of
from swarmx.links.endpoint import Address
from swarmx.links.inbox import Inbox
from swarmx.links.tcp.frames import ReceivedSlabs
from swarmx.links.tcp.link import TcpEndpoint
from swarmx.links.tls import TlsSpec
from swarmx.links.unix.link import SocketEndpoint
from waferstream.core.messages.messages import Envelope
from waferstream.core.messages.payload import Arena


def memory_host() -> str:
    """Return a key that is equal for processes that can share memory, and only for them.

    Sockets without a file belong to a network namespace, numbers of processes to one of processes
    (namespaces(7)): two containers on one computer are two hosts.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = (os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("net", "pid"))
    return ".".join((boot, *map(str, spaces), str(os.getuid())))


def open_auto(
    name: str,
    session: str,
    network: str,
    start_timeout_s: float,
    stall_timeout_s: float,
    arena: Arena,
    tls: TlsSpec | None = None,
    host: str | None = None,
) -> AutoEndpoint:
    """Open the mailbox of a role, on this host unless a test names another."""
    own, limits = credentials_of(name, tls), (start_timeout_s, stall_timeout_s)
    return AutoEndpoint(name, session, network, *limits, own, arena, host or memory_host())


class AutoEndpoint:
    """One role's mailbox, near and far; not thread-safe.

    Args:
        name: The role.
        session: A name that is unique to the cluster.
        network: Name or IP address under which peers on other hosts reach this host.
        start_timeout_s: Limit of the wait for a peer to listen.
        stall_timeout_s: Limit of the wait for a peer to read a message.
        own: The certificate that the role shows to other hosts.
        arena: Memory that the roles of this host share.
        host: The host whose memory the role shares.
    """

    def __init__(
        self,
        name: str,
        session: str,
        network: str,
        start_timeout_s: float,
        stall_timeout_s: float,
        own: Credentials,
        arena: Arena,
        host: str,
    ) -> None:
        self.name = name
        self._host = host
        self._slabs = ReceivedSlabs(arena)
        self._arrival = os.eventfd(0, os.EFD_CLOEXEC)
        inbox = Inbox(name, lambda: os.eventfd_write(self._arrival, 1))
        limits = start_timeout_s, stall_timeout_s
        self._near = near = SocketEndpoint(name, session, *limits)
        self._far = TcpEndpoint(
            name, session, network, *limits, own, self._slabs, inbox, near.is_aborted
        )
        self._near.also_receive(inbox, self._arrival)
        self._far_roles: set[str] = set()
        self._is_closed = False
        here = near.address
        self.address = Address(here.place, here.identity, host, self._far.address)

    @property
    def refused(self) -> int:
        """Connections so far that were not from a role of the directory."""
        return self._near.refused + self._far.refused

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Record which roles are on this host, and the addresses of all."""
        far = {
            role: address.far
            for role, address in directory.items()
            if address.host != self._host and address.far is not None
        }
        self._far_roles = (self._far_roles - set(directory)) | set(far)
        self._near.connect({role: at for role, at in directory.items() if role not in far})
        self._far.connect(far)

    def limit_payloads(self, num_bytes: int) -> None:
        self._near.limit_payloads(num_bytes)
        self._far.limit_payloads(num_bytes)

    def send(self, envelope: Envelope) -> None:
        """Send a message over the link to the target's host; see there for errors."""
        if envelope.target in self._far_roles:
            self._far.send(envelope)
        else:
            self._near.send(envelope)

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message of any host, in order of arrival."""
        return self._near.receive(timeout_s)

    def num_waiting(self) -> int:
        """Return how many messages of all hosts wait."""
        return self._near.num_waiting()

    def close(self) -> None:
        """Close both links; peers notice. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._far.close()
        self._near.close()
        os.close(self._arrival)
