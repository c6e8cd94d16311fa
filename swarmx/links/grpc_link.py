"""The link between hosts: every role is a gRPC server, and streams to the roles it sends to.

One stream carries one direction, in order: see ``wire.proto``. The receiver copies the frames of a
payload into a tensor of its own, so the two processes share no memory. gRPC's threads only move
bytes between the network and two queues; they never run code of the role.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import grpc
import torch

from swarmx.links.endpoint import (
    PAYLOAD_LIMIT_BYTES,
    Address,
    damaged,
    peer_gone,
    stalled,
    unknown_role,
    unreachable,
)
from swarmx.links.memory import MemorySlab
from swarmx.links.wire import (
    DamagedMessageError,
    decode_header,
    encode_header,
    envelope_of,
    payload_of,
)
from wsc.core.errors import ApplianceCorruptionError, ClusterJobInitError
from wsc.core.messages import Envelope
from wsc.core.payload import Payload
from wsc.core.units import MIB

_FRAME_BYTES = 2 * MIB  # below gRPC's default limit of 4 MiB for a message
_SERVICE, _METHOD = "waferstream.Link", "Stream"
_MAX_PEERS = 1024  # each peer that sends keeps one waiting thread
_CLOSE_S = 5.0  # how long close() waits for peers to read what was sent
_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.so_reuseport", 0))


@dataclass(frozen=True)
class _Lost:
    """Marks the end of a peer's messages in the inbox."""

    peer: str


@dataclass(frozen=True)
class _Outbound:
    """A stream to a peer that sends the messages of a queue; None in the queue ends it."""

    channel: grpc.Channel
    queue: SimpleQueue[Envelope | None]
    call: grpc.Future


class GrpcEndpoint:
    """One role's mailbox on the network; ``send`` and ``receive`` are for one thread.

    ``host`` is the name or IP address under which peers reach this host. Streams from peers of
    another ``session`` are refused.
    """

    def __init__(self, name: str, session: str, host: str, start_timeout_s: float) -> None:
        self.name = name
        self.refused = 0
        self._session = session
        self._start_timeout_s = start_timeout_s
        self._payload_limit = PAYLOAD_LIMIT_BYTES
        self._directory: dict[str, Address] = {}
        self._is_connected = threading.Event()
        self._outbound: dict[str, _Outbound] = {}
        self._inbox: SimpleQueue[Envelope | _Lost | ApplianceCorruptionError] = SimpleQueue()
        self._lost: list[str] = []
        self._server = _server(self._take_stream)
        self.address = Address(f"{host}:{_bind(self._server, host)}", "")
        self._server.start()

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Record the addresses of other roles; the first ``send`` to a role opens a stream."""
        self._directory.update(directory)
        self._is_connected.set()

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
        outbound.queue.put(envelope)

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message; messages that a peer sent before it closed still arrive."""
        try:
            item = self._inbox.get(timeout=0 if self._lost else timeout_s)
        except Empty:
            if self._lost:
                raise peer_gone(self.name, self._lost[0]) from None
            raise stalled(self.name, timeout_s) from None
        if isinstance(item, Envelope):
            return item
        if isinstance(item, ApplianceCorruptionError):
            raise item
        self._lost.append(item.peer)
        return self.receive(timeout_s)

    def close(self) -> None:
        """End all streams after peers have read what was sent; peers notice. Idempotent."""
        outbounds, self._outbound = self._outbound, {}
        for outbound in outbounds.values():
            outbound.queue.put(None)
        for outbound in outbounds.values():
            with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError):
                outbound.call.result(timeout=_CLOSE_S)
            outbound.channel.close()
        self._server.stop(grace=None).wait()

    def _open(self, target: str) -> _Outbound:
        """Wait until a peer listens, and start the stream to it."""
        if target not in self._directory:
            raise unknown_role(self.name, target)
        if target in self._lost:
            raise peer_gone(self.name, target)
        channel = grpc.insecure_channel(self._directory[target].place, _OPTIONS)
        try:
            grpc.channel_ready_future(channel).result(timeout=self._start_timeout_s)
        except grpc.FutureTimeoutError:
            channel.close()
            raise unreachable(self.name, target, self._start_timeout_s) from None
        queue: SimpleQueue[Envelope | None] = SimpleQueue()
        call = channel.stream_unary(f"/{_SERVICE}/{_METHOD}").future(
            _frames(queue), metadata=(("session", self._session), ("role", self.name))
        )
        call.add_done_callback(lambda _: self._inbox.put(_Lost(target)))
        self._outbound[target] = _Outbound(channel, queue, call)
        return self._outbound[target]

    def _take_stream(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Put the messages of one peer into the inbox until its stream ends."""
        caller = dict(context.invocation_metadata())
        peer = str(caller.get("role", ""))
        self._is_connected.wait(self._start_timeout_s)  # a peer may be ahead
        if caller.get("session") != self._session or peer not in self._directory:
            self.refused += 1
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not a role of this cluster")
        try:
            for encoded in frames:
                self._inbox.put(self._read(peer, encoded, frames))
        except DamagedMessageError as error:
            self._inbox.put(damaged(self.name, peer, error))
        except (grpc.RpcError, StopIteration):
            pass  # the peer died, perhaps between two frames
        finally:
            self._inbox.put(_Lost(peer))
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


class _DaemonThreads(Executor):
    """Executor with a daemon thread per stream; unlike a pool's, it does not delay the exit."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future


def _server(take_stream: object) -> grpc.Server:
    handler = grpc.stream_unary_rpc_method_handler(take_stream)
    return grpc.server(
        _DaemonThreads(),
        handlers=[grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})],
        options=_OPTIONS,
        maximum_concurrent_rpcs=_MAX_PEERS,  # refuse a further one instead of queueing it
    )


def _bind(server: grpc.Server, host: str) -> int:
    """Bind the server to a free port on ``host`` and return the port."""
    try:
        return int(server.add_insecure_port(f"{host}:0"))
    except RuntimeError as error:
        raise ClusterJobInitError(
            "a role cannot listen", code="address-unavailable", where=host, value=error
        ) from error


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
