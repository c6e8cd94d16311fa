"""TCP between hosts: strangers, and peers that send what is no message, too little, or nothing."""

import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from swarmx.links.certificates import certificate_of_role
from swarmx.links.endpoint import Address
from swarmx.links.link import Link, open_link
from swarmx.links.memory import MemoryArena, MemorySlab
from swarmx.links.tcp import link as tcp_link
from swarmx.links.tcp import streams
from swarmx.links.tcp.frames import write_all, write_record
from swarmx.links.tcp.link import TcpEndpoint, open_tcp
from swarmx.links.tcp.sockets import HANDSHAKE_S, dial, end_connection, secure_accepted
from swarmx.links.wire.messages import MOST_HEADER_BYTES, PROTOCOL_VERSION, encode_header
from swarmx.links.wire.wire_pb2 import Hello  # type: ignore[attr-defined]  # made at import
from tests.support.errors import raises
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceDeadlockError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
)
from waferstream.core.messages.messages import Envelope, WeightsReady, WeightsReleased

SESSION = "ours"
PREFIX = struct.Struct("<II")  # length of the header, number of the frame
STALL_S = 0.3


def opened(name: str, session: str = SESSION, start_timeout_s: float = 10) -> TcpEndpoint:
    return open_tcp(name, session, "127.0.0.1", start_timeout_s, STALL_S, MemoryArena())


@pytest.fixture
def endpoint() -> Iterator[TcpEndpoint]:
    endpoint = opened("a")
    endpoint.connect({})
    yield endpoint
    endpoint.close()


@pytest.fixture
def peer(endpoint: TcpEndpoint) -> Iterator[ssl.SSLSocket]:
    """A connection of role ``x`` of the same cluster, which may send any bytes."""
    own = certificate_of_role("x")
    endpoint.connect({"x": Address("", own.identity)})
    with dial(endpoint.address.place, own, endpoint.address.identity, 10) as connection:
        hello = Hello(version=PROTOCOL_VERSION, session=SESSION, role="x")
        write_record(connection, hello.SerializeToString())
        assert connection.recv(100)
        yield connection


def frame(number: int, envelope: Envelope, payload: bytes = b"") -> bytes:
    header = encode_header(envelope)
    return PREFIX.pack(len(header), number) + header + payload


def weights(num_bytes: int) -> Envelope:
    return Envelope("x", "a", WeightsReady(1, 0, 0, MemorySlab(num_bytes)))


RELEASED = Envelope("x", "a", WeightsReleased(1, 0, 0))


def assert_nothing_arrives(endpoint: TcpEndpoint) -> None:
    with raises(ApplianceDeadlockError, "link-stalled"):
        endpoint.receive(0.05)


@pytest.mark.parametrize(
    "sent",
    [
        PREFIX.pack(MOST_HEADER_BYTES + 1, 1),
        PREFIX.pack(50, 1) + b"\xff" * 50,
        PREFIX.pack(0, 1),
        frame(1, Envelope("y", "a", WeightsReleased(1, 0, 0))),
        frame(1, Envelope("x", "b", WeightsReleased(1, 0, 0))),
        frame(2, RELEASED),
        frame(1, RELEASED) * 2,
        frame(1, weights(8), bytes(8)) + frame(2, weights(8), bytes(8)),
        frame(1, weights(65), bytes(65)),
    ],
    ids=[
        "long header",
        "garbage",
        "empty header",
        "other source",
        "other target",
        "lost frame",
        "repeated frame",
        "message twice",
        "payload beyond the limit",
    ],
)
def test_bad_frame_names_its_sender(
    endpoint: TcpEndpoint, peer: ssl.SSLSocket, sent: bytes
) -> None:
    """Messages before it arrive; then the role gets an error, and the peer's connection ends."""
    endpoint.limit_payloads(64)
    write_all(peer, sent)
    with raises(ApplianceCorruptionError, "message-damaged") as caught:
        for _ in range(2):
            endpoint.receive(10)
    assert str(caught.value.value).startswith("from x")
    with suppress(ConnectionResetError):  # there were bytes that nobody has read
        assert peer.recv(1) == b""


@pytest.mark.parametrize("sent", [b"\1", frame(1, RELEASED)[:-1], frame(1, weights(64), b"1")])
def test_peer_that_closes_within_a_message_is_gone(
    endpoint: TcpEndpoint, peer: ssl.SSLSocket, sent: bytes
) -> None:
    """The part that has come is no message."""
    write_all(peer, sent)
    peer.close()
    with raises(ApplianceRuntimeServerError, "peer-gone"):
        endpoint.receive(10)


def test_peer_that_stops_within_a_message_is_a_deadlock(
    endpoint: TcpEndpoint, peer: ssl.SSLSocket
) -> None:
    """A short frame ends the wait after the stall time-out; silence between messages does not."""
    with raises(ApplianceDeadlockError, "link-stalled"):
        endpoint.receive(2 * STALL_S)
    write_all(peer, frame(1, weights(64), b"1"))
    with raises(ApplianceDeadlockError, "link-stalled") as caught:
        endpoint.receive(10)
    assert caught.value.value == "x"


def test_slow_peer_is_waited_for(endpoint: TcpEndpoint, peer: ssl.SSLSocket) -> None:
    """A message may come byte by byte."""
    for byte in frame(1, RELEASED):
        write_all(peer, bytes([byte]))
    assert endpoint.receive(10) == RELEASED


def test_changed_ciphertext_is_an_error(endpoint: TcpEndpoint, peer: ssl.SSLSocket) -> None:
    """Bytes that TLS has not written are damage, not a message."""
    with socket.socket(fileno=peer.detach()) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record of application data
        with raises(ApplianceCorruptionError, "message-damaged"):
            endpoint.receive(10)


def test_payload_without_room_is_an_error(endpoint: TcpEndpoint, peer: ssl.SSLSocket) -> None:
    """A payload within the limit, for which this process has no memory, ends the run."""
    too_large = 1 << 50
    endpoint.limit_payloads(too_large)
    header = encode_header(weights(0))
    header = header + b"\x18" + bytes([0x80] * 7 + [2])  # payload_bytes = 2**50, as a varint
    write_all(peer, PREFIX.pack(len(header), 1) + header)
    with raises(ApplianceResourceExhausted, "no-memory-for-payload"):
        endpoint.receive(10)


@pytest.mark.parametrize(
    ("version", "session"), [(PROTOCOL_VERSION + 1, SESSION), (PROTOCOL_VERSION, "theirs")]
)
def test_role_of_another_version_or_session_is_refused(
    endpoint: TcpEndpoint, monkeypatch: pytest.MonkeyPatch, version: int, session: str
) -> None:
    """It learns the reason at once; nothing arrives, and it is counted."""
    monkeypatch.setattr(tcp_link, "PROTOCOL_VERSION", version)
    stranger = opened("x", session)
    try:
        endpoint.connect({"x": stranger.address})
        stranger.connect({"a": endpoint.address})
        with raises(ApplianceRuntimeServerError, "peer-refuses"):
            stranger.send(RELEASED)
        assert_nothing_arrives(endpoint)
        assert endpoint.refused == 1
    finally:
        stranger.close()


def test_role_cannot_take_the_name_of_another(endpoint: TcpEndpoint) -> None:
    """A role of the directory that uses another's name delivers nothing, and is counted."""
    other = opened("y", start_timeout_s=0.2)
    try:
        endpoint.connect({"y": other.address, "x": opened_identity("x")})
        other.connect({"a": endpoint.address})
        other.name = "x"
        with raises(ApplianceRuntimeServerError, "peer-unreachable"):
            other.send(RELEASED)
        assert_nothing_arrives(endpoint)
        assert endpoint.refused
    finally:
        other.close()


def opened_identity(role: str) -> Address:
    return Address("", certificate_of_role(role).identity)


def test_certificate_of_a_stranger_is_refused(endpoint: TcpEndpoint) -> None:
    """Who is in no directory does not get past the handshake."""
    stranger = opened("x", start_timeout_s=0.2)
    try:
        stranger.connect({"a": endpoint.address})
        with raises(ApplianceRuntimeServerError, "peer-unreachable"):
            stranger.send(RELEASED)
        assert_nothing_arrives(endpoint)
    finally:
        stranger.close()


def test_listener_with_another_certificate_gets_nothing(endpoint: TcpEndpoint) -> None:
    """A sender does not talk to a process that has taken the port of its peer."""
    sender = opened("x")
    try:
        sender.connect({"a": endpoint.address._replace(identity=opened_identity("a").identity)})
        endpoint.connect({"x": sender.address})
        with raises(ApplianceRuntimeServerError, "peer-not-authentic"):
            sender.send(RELEASED)
        assert_nothing_arrives(endpoint)
    finally:
        sender.close()


def test_strangers_neither_fill_the_process_nor_hold_up_a_role(endpoint: TcpEndpoint) -> None:
    """Of those who connect and say nothing, few are heard: the newest; a role is one of them."""
    host, port = endpoint.address.place.split(":")
    role = opened("x")
    others = threading.active_count()
    with ExitStack() as stack:
        stack.callback(role.close)
        role.connect({"a": endpoint.address})
        endpoint.connect({"x": role.address})
        silent = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(200)
        ]
        begin_s = time.monotonic()
        role.send(RELEASED)
        assert endpoint.receive(5) == RELEASED
        assert time.monotonic() - begin_s < HANDSHAKE_S / 4
        assert threading.active_count() - others < 2 * streams._MOST_STRANGERS
        first = silent[: 200 - streams._MOST_STRANGERS]
        assert all(connection.recv(1) == b"" for connection in first)


def test_connection_without_tls_is_refused(endpoint: TcpEndpoint) -> None:
    """Nothing in clear text reaches a role."""
    host, port = endpoint.address.place.split(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        plain.sendall(frame(1, RELEASED))
        with suppress(ConnectionResetError):
            while plain.recv(100):
                pass
    assert_nothing_arrives(endpoint)
    assert endpoint.refused == 1


def test_peer_that_does_not_read_is_a_deadlock() -> None:
    """A full connection that stays full ends in an error after the stall time-out."""
    a, silent = opened("a"), opened("b")
    a.connect({"b": silent.address})
    silent.connect({"a": a.address})
    end = threading.Event()
    silent._inbound._read = lambda *_: end.wait(10)  # type: ignore[assignment]
    try:
        slab = MemoryArena().allocate(32 << 20)
        a.send(Envelope("a", "b", WeightsReady(1, 0, 0, slab)))
        with raises(ApplianceDeadlockError, "link-stalled") as caught:
            a.receive(10)
        assert caught.value.value == "b"
    finally:
        end.set()
        a.close()
        silent.close()


def test_closed_links_leave_no_thread() -> None:
    """Threads of accepted and opened connections end with the link."""
    before = set(threading.enumerate())
    session = uuid.uuid4().hex
    links: list[Link] = [open_link("auto", role, session, memory=role) for role in ("a", "b")]
    directory = {link.endpoint.name: link.endpoint.address for link in links}
    for link in links:
        link.endpoint.connect(directory)
    links[0].endpoint.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
    assert links[1].endpoint.receive(10).message.step == 1
    for link in links:
        link.close()
        link.close()
    assert set(threading.enumerate()) <= before


def test_handshake_that_begins_while_a_link_closes_cannot_keep_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The link ends connections whose plain socket becomes a secure one at that moment."""
    endpoint, own = opened("a"), certificate_of_role("x")
    endpoint.connect({"x": Address("", own.identity)})
    accepted, closing, secured = threading.Event(), threading.Event(), threading.Event()

    def secure_while_closing(plain: socket.socket, *others: Any) -> ssl.SSLSocket:
        accepted.set()
        assert closing.wait(10)
        connection = secure_accepted(plain, *others)
        secured.set()
        return connection

    def end_when_secured(connection: socket.socket) -> None:
        closing.set()
        assert connection is endpoint._listener or secured.wait(10)
        end_connection(connection)

    monkeypatch.setattr(streams, "secure_accepted", secure_while_closing)
    monkeypatch.setattr(streams, "end_connection", end_when_secured)

    def say_hello() -> None:
        identity = endpoint.address.identity
        with suppress(OSError), dial(endpoint.address.place, own, identity, 10) as connection:
            hello = Hello(version=PROTOCOL_VERSION, session=SESSION, role="x")
            write_record(connection, hello.SerializeToString())
            while connection.recv(100):  # until the link has closed it
                pass

    peer = threading.Thread(target=say_hello, daemon=True)
    peer.start()
    assert accepted.wait(10)
    endpoint.close()
    peer.join(10)
    assert not peer.is_alive()


def test_tcp_address_must_be_of_this_host() -> None:
    """An address of another host is refused at the start (203.0.113.0/24 is for examples)."""
    with raises(ClusterJobInitError, "address-unavailable"):
        open_tcp("a", SESSION, "203.0.113.1", 1, 1, MemoryArena())
