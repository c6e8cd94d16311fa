"""Open the link of a role by name: its mailbox, and memory for the payloads that it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from swarmx.links.endpoint import Endpoint
from swarmx.links.memory import MemoryArena, SharedArena, unmap_lost_blocks
from swarmx.links.tls import TlsSpec
from swarmx.links.unix.link import SocketEndpoint
from waferstream.core.messages.payload import Arena

LinkKind = Literal["auto", "shared_memory", "tcp", "grpc"]
"""``auto`` is shared memory within a host and TCP between hosts."""


@dataclass(frozen=True)
class Link:
    """The mailbox of one role, and memory for the payloads that it sends."""

    endpoint: Endpoint
    arena: Arena

    def close(self) -> None:
        """Close the mailbox, then free the memory."""
        self.endpoint.close()
        self.arena.close()

    def retire(self) -> Arena:
        """Close the mailbox; return the memory, all of it free, for the next link of the role."""
        self.endpoint.close()
        self.arena.take_back_all()
        unmap_lost_blocks()
        return self.arena


def open_link(
    kind: LinkKind,
    role: str,
    session: str,
    *,
    host: str = "127.0.0.1",
    start_timeout_s: float = 90.0,
    stall_timeout_s: float = 600.0,
    arena: Arena | None = None,
    tls: TlsSpec | None = None,
    memory: str | None = None,
) -> Link:
    """Open the link of one role; roles of one session can reach each other.

    Args:
        kind: What carries the messages.
        role: Name of the role.
        session: A name that is unique to the cluster.
        host: Where other hosts reach this one (not shared memory).
        start_timeout_s: Limit of the wait for a peer to listen.
        stall_timeout_s: Limit of the wait for a peer to read a message (not gRPC).
        arena: Memory of an earlier link of the role, to be used again.
        tls: Certificates of this host; without, the role makes one of its own (not shared memory).
        memory: The host whose memory the role shares; the one it is on if None (auto only).

    Raises:
        ConfigError: The files of ``tls`` cannot be used.
        ClusterJobInitError: The role cannot listen.
    """
    limits = start_timeout_s, stall_timeout_s
    match kind:
        case "shared_memory":
            return Link(SocketEndpoint(role, session, *limits), arena or SharedArena())
        case "grpc":
            from swarmx.links.grpc.link import open_grpc  # noqa: PLC0415 - loads C libraries

            endpoint = open_grpc(role, session, host, start_timeout_s, tls)
            return Link(endpoint, arena or MemoryArena())
        case "tcp":
            from swarmx.links.tcp.link import open_tcp  # noqa: PLC0415 - loads C libraries

            arena = arena or MemoryArena()
            return Link(open_tcp(role, session, host, *limits, arena, tls), arena)
        case "auto":
            from swarmx.links.auto_link import open_auto  # noqa: PLC0415 - loads C libraries

            arena = arena or SharedArena()
            return Link(open_auto(role, session, host, *limits, arena, tls, memory), arena)
    assert_never(kind)
