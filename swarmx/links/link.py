"""The links by name: how a role that runs somewhere gets its mailbox and its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

from swarmx.links.memory import MemoryArena
from swarmx.links.shared_memory import SharedArena
from swarmx.links.unix_socket import SocketEndpoint
from wsc.core.link import Endpoint
from wsc.core.payload import Arena

LinkKind = Literal["shared_memory", "grpc"]


class LinkEndpoint(Endpoint, Protocol):
    """An endpoint that has to be told where the others are."""

    address: str
    """Where peers reach this role."""

    def connect(self, directory: Mapping[str, str]) -> None:
        """Learn the address of every role that will be sent to, by role name."""


@dataclass(frozen=True)
class Link:
    """What a role needs to talk: a mailbox, and memory for what it sends."""

    endpoint: LinkEndpoint
    arena: Arena

    def close(self) -> None:
        """Close the mailbox, then give the memory back."""
        self.endpoint.close()
        self.arena.close()


def open_link(
    kind: LinkKind,
    role: str,
    session: str,
    *,
    host: str = "127.0.0.1",
    start_timeout_s: float = 90.0,
    stall_timeout_s: float = 600.0,
) -> Link:
    """The link of one role; roles of one ``session`` (a name unique to the cluster) can talk.

    ``host`` is where other hosts reach this one (gRPC only). ``start_timeout_s`` bounds the wait
    for a peer to listen, ``stall_timeout_s`` the wait for a peer to make room for a message
    (shared memory only).
    """
    match kind:
        case "shared_memory":
            endpoint = SocketEndpoint(role, session, start_timeout_s, stall_timeout_s)
            return Link(endpoint, SharedArena())
        case "grpc":
            from swarmx.links.grpc_link import GrpcEndpoint  # noqa: PLC0415 - loads a C library

            return Link(GrpcEndpoint(role, session, host, start_timeout_s), MemoryArena())
    assert_never(kind)
