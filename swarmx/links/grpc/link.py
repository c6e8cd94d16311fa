"""The gRPC link between hosts: every role is a server, and streams to the roles it sends to.

Every connection is TLS with certificates on both sides (see ``certificates``), so what arrives is
whole, secret, and from the role that the directory names.

One stream carries one direction, in order: see ``wire.proto``. The receiver copies the frames of a
payload into a tensor of its own, so the two processes share no memory. gRPC's threads only move
bytes between the network and two queues; they never run code of the role.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue

import grpc
import torch

from swarmx.links.certificates import Credentials, credentials_of
from swarmx.links.endpoint import (
    MOST_WAITING,
    PAYLOAD_LIMIT_BYTES,
    Address,
    aborted,
    damaged,
    not_authentic,
    peer_gone,
    queue_full,
    unknown_role,
    unreachable,
)
from swarmx.links.grpc.server import METHOD, OPTIONS, SERVICE, listen, make_server
from swarmx.links.inbox import Inbox
from swarmx.links.memory import MemorySlab
from swarmx.links.tcp.sockets import reserve_port
from swarmx.links.tls import TlsSpec
from swarmx.links.wire.messages import (
    PROTOCOL_VERSION,
    DamagedMessageError,
    decode_header,
    encode_header,
    envelope_of,
    payload_of,
    stamped,
)
from waferstream.core.error_status import status_of
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.messages.messages import Envelope
from waferstream.core.messages.payload import Payload
from waferstream.core.units import MIB

_FRAME_BYTES = 2 * MIB  # below gRPC's default limit of 4 MiB for a message
_LOOK_S = 1.0  # between two looks at a connection that does not come about
_HANDSHAKE_S = 5.0  # a peer refuses handshakes until it knows the directory
_CLOSE_S = 5.0  # how long close() waits for peers to read what was sent
_REFUSED = grpc.StatusCode[status_of(ApplianceRuntimeServerError, "peer-refuses").grpc]


@dataclass(frozen=True)
class _Outbound:
    """A stream to a peer that sends the messages of a queue; None in the queue ends it."""

    channel: grpc.Channel
    queue: SimpleQueue[Envelope | None]
    call: grpc.Future


def open_grpc(
    name: str, session: str, host: str, start_timeout_s: float, tls: TlsSpec | None = None
) -> GrpcEndpoint:
    """Open the mailbox of a role, with the certificate of its host or one of its own."""
    return GrpcEndpoint(name, session, host, start_timeout_s, credentials_of(name, tls))


class GrpcEndpoint:
    """One role's mailbox on the network; ``send`` and ``receive`` are for one thread.

    ``host`` is the name or IP address under which peers reach this host. Streams are refused from
    peers of another ``session`` or version of the protocol, and from those whose certificate is not
    that of the directory.
    """

    def __init__(
        self, name: str, session: str, host: str, start_timeout_s: float, own: Credentials
    ) -> None:
        self.name = name
        self.refused = 0
        self._session = f"{session}, protocol {PROTOCOL_VERSION}"
        self._start_timeout_s = start_timeout_s
        self._payload_limit = PAYLOAD_LIMIT_BYTES
        self._directory: dict[str, Address] = {}
        self._outbound: dict[str, _Outbound] = {}
        self._inbox = Inbox(name)
        self._own = own
        self._reserved = reserve_port(host)
        self._server: grpc.Server | None = None
        self._new_trusted: grpc.ServerCertificateConfiguration | None = None
        self.address = Address(f"{host}:{self._reserved.getsockname()[1]}", own.identity)

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Record the addresses of other roles; the first time, begin to listen.

        The server begins with the certificates of its peers: gRPC 1.85 can crash when they are
        replaced during a handshake.
        """
        self._directory.update(directory)
        trusted = self._server_certificates()
        if self._server is not None:
            self._new_trusted = trusted
            return
        self._server = make_server(self._take_stream)
        self._reserved.close()
        credentials = grpc.dynamic_ssl_server_credentials(
            trusted, self._take_new_trusted, require_client_authentication=True
        )
        listen(self._server, self.address.place, credentials)

    def limit_payloads(self, num_bytes: int) -> None:
        self._payload_limit = num_bytes

    def send(self, envelope: Envelope) -> None:
        """Queue a message for its target's stream; a thread reads its payload later.

        Raises:
            ApplianceRuntimeServerError: The target is gone or cannot be reached.
        """
        target = envelope.target
        outbound = self._outbound.get(target) or self._open(target)
        if outbound.call.done():
            raise peer_gone(self.name, target)
        if outbound.queue.qsize() >= MOST_WAITING:
            raise queue_full(self.name, self.name)
        outbound.queue.put(stamped(envelope))

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message; messages that a peer sent before it closed still arrive."""
        return self._inbox.receive(timeout_s)

    def num_waiting(self) -> int:
        """Return how many messages wait."""
        return self._inbox.num_waiting

    def close(self) -> None:
        """End all streams after peers have read what was sent; peers notice. Idempotent."""
        outbounds, self._outbound = self._outbound, {}
        for outbound in outbounds.values():
            outbound.queue.put(None)
        for outbound in outbounds.values():
            with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError):
                outbound.call.result(timeout=_CLOSE_S)
            outbound.channel.close()
        self._reserved.close()
        if self._server is not None:
            self._server.stop(grace=None).wait()

    def _open(self, target: str) -> _Outbound:
        """Wait until a peer listens, and start the stream to it."""
        if target not in self._directory:
            raise unknown_role(self.name, target)
        if self._inbox.has_lost(target):
            raise peer_gone(self.name, target)
        channel = self._channel(target)
        try:
            self._wait_for(target, channel)
        except BaseException:
            channel.close()
            raise
        queue: SimpleQueue[Envelope | None] = SimpleQueue()
        call = channel.stream_unary(f"/{SERVICE}/{METHOD}").future(
            _frames(queue), metadata=(("session", self._session), ("role", self.name))
        )
        call.add_done_callback(lambda _: self._inbox.lose(target))
        self._outbound[target] = _Outbound(channel, queue, call)
        return self._outbound[target]

    def _channel(self, target: str) -> grpc.Channel:
        """Return a channel on which only the role at this address can answer."""
        place, identity, *_ = self._directory[target]
        own, options = self._own, OPTIONS
        if own.authority is None:  # the certificate is of a role, not of its host
            options = (*OPTIONS, ("grpc.ssl_target_name_override", target))
        trusted = own.authority or identity.encode()
        credentials = grpc.ssl_channel_credentials(trusted, own.key, own.certificate)
        return grpc.secure_channel(place, credentials, options)

    def _wait_for(self, target: str, channel: grpc.Channel) -> None:
        """Wait until a peer listens.

        Raises:
            ApplianceRuntimeServerError: It does not within the time limit, or what listens there
                does not have the peer's certificate.
        """
        ready = grpc.channel_ready_future(channel)
        start_s = time.monotonic()
        while True:
            waited_s = time.monotonic() - start_s
            left_s = self._start_timeout_s - waited_s
            try:
                ready.result(timeout=max(0.0, min(_LOOK_S, left_s)))
                return
            except grpc.FutureTimeoutError:
                if self._inbox.is_aborted:  # the peer has ended before it was called first
                    raise aborted(self.name) from None
                reason = _failure_of(channel)
                if "handshake" in reason and waited_s > min(_HANDSHAKE_S, left_s):
                    raise not_authentic(self.name, target, reason) from None
                if left_s <= 0:
                    raise unreachable(self.name, target, self._start_timeout_s) from None

    def _server_certificates(self) -> grpc.ServerCertificateConfiguration:
        """Return the own certificate, and whose certificates a connection may show."""
        own = self._own
        peers = "".join({address.identity for address in self._directory.values()})
        trusted = own.authority or (peers.encode() or own.certificate)
        return grpc.ssl_server_certificate_configuration([(own.key, own.certificate)], trusted)

    def _take_new_trusted(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates since the last call, None if they are the same."""
        new, self._new_trusted = self._new_trusted, None
        return new

    def _is_of_peer(self, peer: str, context: grpc.ServicerContext) -> bool:
        """Return whether a stream is of this session, and from the role that it names."""
        known = self._directory.get(peer)
        session = dict(context.invocation_metadata()).get("session")
        shown = context.auth_context().get("x509_pem_cert", [b""])[0].decode()
        return known is not None and session == self._session and shown == known.identity

    def _take_stream(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Put the messages of one peer into the inbox until its stream ends."""
        peer = str(dict(context.invocation_metadata()).get("role", ""))
        if not self._is_of_peer(peer, context):
            self.refused += 1
            context.abort(_REFUSED, "not a role of this cluster")
        try:
            for encoded in frames:
                if not self._inbox.put(self._read(peer, encoded, frames)):
                    break
        except DamagedMessageError as error:
            self._inbox.fail(damaged(self.name, peer, error))
        except (grpc.RpcError, StopIteration):
            pass  # the peer died, perhaps between two frames
        finally:
            self._inbox.lose(peer)
        return b""

    def _read(self, peer: str, encoded: bytes, frames: Iterator[bytes]) -> Envelope:
        """Return the message of a header and of the frames that follow it.

        Raises:
            DamagedMessageError: The message is damaged, too large, or of another role.
        """
        header, payload_bytes = decode_header(encoded)
        if (header.source, header.target) != (peer, self.name):
            raise DamagedMessageError(f"from {header.source} to {header.target}")
        if payload_bytes is None:
            return envelope_of(header, None)
        if payload_bytes > self._payload_limit:
            raise DamagedMessageError(f"a payload of {payload_bytes} bytes")
        return envelope_of(header, _read_payload(frames, payload_bytes))


def _failure_of(channel: grpc.Channel) -> str:
    """Return why a channel is not connected."""
    try:
        channel.unary_unary(f"/{SERVICE}/Look")(b"", timeout=_LOOK_S)
    except grpc.RpcError as error:
        return str(error.details()).lower()
    return ""


def _frames(queue: SimpleQueue[Envelope | None]) -> Iterator[bytes]:
    """Yield the messages of a queue as frames, until it yields None."""
    while (envelope := queue.get()) is not None:
        payload = payload_of(envelope)
        # Viewed before the header is sent: a receiver frees an empty payload at the header.
        content = b"" if payload is None else payload.view(torch.uint8).numpy().data
        yield encode_header(envelope)
        for start in range(0, len(content), _FRAME_BYTES):
            yield bytes(content[start : start + _FRAME_BYTES])


def _read_payload(frames: Iterator[bytes], num_bytes: int) -> Payload:
    """Copy a payload from the frames that follow its header; an empty payload has no frame.

    Raises:
        DamagedMessageError: The frames are not those of the payload.
    """
    payload = MemorySlab(num_bytes)
    content = payload.view(torch.uint8).numpy().data
    filled = 0
    while filled < num_bytes:
        frame = next(frames)
        if not 0 < len(frame) <= num_bytes - filled:
            raise DamagedMessageError(f"a frame of {len(frame)} bytes")
        content[filled : filled + len(frame)] = frame
        filled += len(frame)
    return payload
