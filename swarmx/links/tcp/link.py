"""The TCP link between hosts: TLS 1.3 with certificates on both sides.

Every role listens, and opens a connection to every role that it sends to. A connection carries one
direction: ``Hello`` and ``Welcome`` of ``wire.proto``, then the messages (see ``frames``). A thread
for each writes or reads it; ``ssl`` works without Python's lock meanwhile. TCP's window and the
credits of the roles keep what is on its way within bounds.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial

from google.protobuf.message import DecodeError

from swarmx.links.certificates import Credentials, credentials_of
from swarmx.links.endpoint import (
    Address,
    aborted,
    not_authentic,
    peer_gone,
    queue_full,
    refused,
    stalled_peer,
    unknown_role,
    unreachable,
)
from swarmx.links.inbox import Inbox
from swarmx.links.tcp.frames import FrameReader, ReceivedSlabs, write_record
from swarmx.links.tcp.sockets import HANDSHAKE_S, dial, reserve_port
from swarmx.links.tcp.streams import InboundStreams, Outbound
from swarmx.links.tls import TlsSpec
from swarmx.links.wire.messages import PROTOCOL_VERSION, DamagedMessageError, stamped
from swarmx.links.wire.wire_pb2 import Hello, Welcome  # type: ignore[attr-defined]  # made at import
from waferstream.core.errors import WaferStreamError
from waferstream.core.messages.messages import Envelope
from waferstream.core.messages.payload import Arena

_RETRY_S = 0.05  # pause before a peer that does not listen yet is tried again
_CLOSE_S = 5.0  # how long close() waits for peers to read what was sent
_LAST_MESSAGES_S = 1.0  # a peer's last messages may arrive after the end of the way to it
_MOST_WELCOME_BYTES = 64
_REFUSALS = {Welcome.OTHER_VERSION: "another version", Welcome.OTHER_SESSION: "another session"}


def open_tcp(
    name: str,
    session: str,
    host: str,
    start_timeout_s: float,
    stall_timeout_s: float,
    arena: Arena,
    tls: TlsSpec | None = None,
) -> TcpEndpoint:
    """Open the mailbox of a role; arguments as those of ``open_link``."""
    own, slabs = credentials_of(name, tls), ReceivedSlabs(arena)
    limits = start_timeout_s, stall_timeout_s
    return TcpEndpoint(name, session, host, *limits, own, slabs, Inbox(name))


class TcpEndpoint:
    """One role's mailbox on the network; ``send`` and ``receive`` are for one thread.

    Args:
        name: The role.
        session: A name that is unique to the cluster.
        host: Name or IP address under which peers reach this host.
        start_timeout_s: Limit of the wait for a peer to listen.
        stall_timeout_s: Limit of the wait for a peer to read, and for the rest of a message.
        own: The certificate that the role shows.
        slabs: Memory for payloads that arrive.
        inbox: Where messages arrive.
        is_aborted: Tells whether another link of the role has an order to end its job.
    """

    def __init__(
        self,
        name: str,
        session: str,
        host: str,
        start_timeout_s: float,
        stall_timeout_s: float,
        own: Credentials,
        slabs: ReceivedSlabs,
        inbox: Inbox,
        is_aborted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self._is_aborted = is_aborted
        self._session = session
        self._start_timeout_s, self._stall_timeout_s = start_timeout_s, stall_timeout_s
        self._own, self._slabs, self._inbox = own, slabs, inbox
        self._directory: dict[str, Address] = {}
        self._outbound: dict[str, Outbound] = {}
        self._inbound = InboundStreams(
            name, session, own, self._directory, inbox, slabs, stall_timeout_s
        )
        self._listener = reserve_port(host)
        self._listens = self._is_closing = False
        self.address = Address(f"{host}:{self._listener.getsockname()[1]}", own.identity)

    @property
    def refused(self) -> int:
        """Connections so far that were not from a role of the directory."""
        return self._inbound.refused

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Record the addresses of other roles; the first time, begin to listen."""
        self._directory.update(directory)
        if not self._listens:
            self._inbound.listen(self._listener)
            self._listens = True

    def limit_payloads(self, num_bytes: int) -> None:
        self._slabs.limit_bytes = num_bytes

    def send(self, envelope: Envelope) -> None:
        """Queue a message for its target's connection; a thread reads its payload later.

        Raises:
            ApplianceRuntimeServerError: The target is gone, cannot be reached, or refuses this
                role.
        """
        target = envelope.target
        outbound = self._outbound.get(target) or self._open(target)
        if outbound.has_ended:
            raise peer_gone(self.name, target)
        if outbound.is_full:
            raise queue_full(self.name, self.name)
        outbound.put(stamped(envelope))
        self._slabs.release(envelope)

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message; messages that a peer sent before it closed still arrive."""
        return self._inbox.receive(timeout_s)

    def num_waiting(self) -> int:
        """Return how many messages wait."""
        return self._inbox.num_waiting

    def close(self) -> None:
        """End all connections after peers have read what was sent; peers notice. Idempotent."""
        self._is_closing = True
        outbounds, self._outbound = list(self._outbound.values()), {}
        for outbound in outbounds:
            outbound.finish()
        limit_s = time.monotonic() + _CLOSE_S
        for outbound in outbounds:
            outbound.close(max(0.0, limit_s - time.monotonic()))
        self._inbound.close()
        self._listener.close()

    def _open(self, target: str) -> Outbound:
        """Wait until a peer listens and welcomes this role.

        Raises:
            ApplianceRuntimeServerError: It does not within the time limit, or what listens there
                does not have the peer's certificate.
        """
        if target not in self._directory:
            raise unknown_role(self.name, target)
        if self._inbox.has_lost(target):
            raise peer_gone(self.name, target)
        limit_s = time.monotonic() + self._start_timeout_s
        while (connection := self._dial(target, limit_s)) is None:
            if time.monotonic() > limit_s:
                raise unreachable(self.name, target, self._start_timeout_s)
            if self._inbox.is_aborted or self._is_aborted():
                raise aborted(self.name)  # the peer has ended before it was called first
            time.sleep(_RETRY_S)
        connection.settimeout(self._stall_timeout_s)
        self._outbound[target] = Outbound(connection, partial(self._end_of, target))
        return self._outbound[target]

    def _dial(self, target: str, limit_s: float) -> ssl.SSLSocket | None:
        """Return a connection to a peer that welcomes this role, None if it does not (yet)."""
        place, identity, *_ = self._directory[target]
        left_s = max(_RETRY_S, limit_s - time.monotonic())
        try:
            connection = dial(place, self._own, identity, min(left_s, HANDSHAKE_S))
        except ssl.SSLCertVerificationError as error:
            raise not_authentic(self.name, target, error.verify_message or error) from error
        except OSError:
            return None
        try:
            if self._is_welcome(connection, target):
                return connection
        except (OSError, DecodeError, DamagedMessageError):
            pass  # the peer does not know this role's certificate yet
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    def _is_welcome(self, connection: ssl.SSLSocket, target: str) -> bool:
        """Send the name of this role to a peer; return whether the peer takes messages.

        Raises:
            ApplianceRuntimeServerError: The peer refuses this role for good.
        """
        hello = Hello(version=PROTOCOL_VERSION, session=self._session, role=self.name)
        write_record(connection, hello.SerializeToString())
        answer = Welcome.FromString(FrameReader(connection).record(_MOST_WELCOME_BYTES)).answer
        if answer in _REFUSALS:
            raise refused(self.name, target, _REFUSALS[answer])
        return bool(answer == Welcome.ACCEPTED)

    def _end_of(self, target: str, reason: Exception | None) -> None:
        """Report the end of the connection to a peer, behind the peer's last message."""
        if self._is_closing:
            return
        if isinstance(reason, TimeoutError) and reason.errno is None:
            self._inbox.fail(stalled_peer(self.name, target, self._stall_timeout_s))
        elif isinstance(reason, WaferStreamError):
            self._inbox.fail(reason)
        self._inbound.wait_for_the_last_message(target, _LAST_MESSAGES_S)
        self._inbox.lose(target)
