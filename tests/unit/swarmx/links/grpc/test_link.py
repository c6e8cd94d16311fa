"""gRPC between hosts: refused peers, broken streams, invalid addresses."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import grpc
import pytest

from swarmx.links.certificates import certificate_of_role, make_authority, make_certificate
from swarmx.links.endpoint import Address
from swarmx.links.grpc import link as grpc_link
from swarmx.links.grpc.link import GrpcEndpoint, open_grpc
from swarmx.links.memory import MemoryArena
from swarmx.links.tls import TlsSpec
from swarmx.links.wire.messages import PROTOCOL_VERSION
from tests.support.errors import raises
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
)
from waferstream.core.messages.messages import Envelope, WeightsReady, WeightsReleased
from waferstream.core.units import MIB


@pytest.fixture
def endpoint() -> Iterator[GrpcEndpoint]:
    endpoint = open_grpc("a", "ours", "127.0.0.1", start_timeout_s=10)
    endpoint.connect({})
    yield endpoint
    endpoint.close()


@pytest.fixture
def peer(endpoint: GrpcEndpoint) -> Iterator[GrpcEndpoint]:
    """Role ``x`` of the same cluster."""
    peer = open_grpc("x", "ours", "127.0.0.1", start_timeout_s=10)
    peer.connect({"a": endpoint.address})
    endpoint.connect({"x": peer.address})
    yield peer
    peer.close()


def knock(stranger: GrpcEndpoint) -> None:
    """Send to ``a`` and wait for an answer; a refusal may come before or after."""
    stranger.send(Envelope("x", "a", WeightsReady(1, 0, 0, MemoryArena().allocate(8))))
    stranger.receive(10)


def assert_nothing_arrives(endpoint: GrpcEndpoint) -> None:
    with raises(ApplianceDeadlockError, "link-stalled"):
        endpoint.receive(0.05)


@pytest.mark.parametrize(
    ("version", "session"), [(PROTOCOL_VERSION + 1, "ours"), (PROTOCOL_VERSION, "theirs")]
)
def test_role_of_another_version_or_session_is_refused(
    endpoint: GrpcEndpoint, monkeypatch: pytest.MonkeyPatch, version: int, session: str
) -> None:
    """It delivers nothing, gets an error, and is counted."""
    monkeypatch.setattr(grpc_link, "PROTOCOL_VERSION", version)
    stranger = open_grpc("x", session, "127.0.0.1", start_timeout_s=10)
    try:
        stranger.connect({"a": endpoint.address})
        endpoint.connect({"x": stranger.address})
        with raises(ApplianceRuntimeServerError, "peer-gone"):
            knock(stranger)
        assert_nothing_arrives(endpoint)
        assert endpoint.refused == 1
    finally:
        stranger.close()


def test_role_cannot_take_the_name_of_another(endpoint: GrpcEndpoint, peer: GrpcEndpoint) -> None:
    """A role of the directory that uses another's name delivers nothing, and is counted."""
    other = open_grpc("y", "ours", "127.0.0.1", start_timeout_s=10)
    try:
        endpoint.connect({"y": other.address})
        other.connect({"a": endpoint.address})
        other.name = "x"
        with raises(ApplianceRuntimeServerError, "peer-gone"):
            knock(other)
        assert_nothing_arrives(endpoint)
        assert endpoint.refused == 1
    finally:
        other.close()


def test_certificate_of_a_stranger_is_refused(endpoint: GrpcEndpoint) -> None:
    """Who is in no directory does not get past the handshake."""
    stranger = open_grpc("x", "ours", "127.0.0.1", start_timeout_s=1)
    try:
        stranger.connect({"a": endpoint.address})
        with raises(ApplianceRuntimeServerError, "peer-unreachable"):
            knock(stranger)
        assert_nothing_arrives(endpoint)
    finally:
        stranger.close()


def test_listener_with_another_certificate_gets_nothing(endpoint: GrpcEndpoint) -> None:
    """A sender does not talk to a process that has taken the port of its peer."""
    sender = open_grpc("x", "ours", "127.0.0.1", start_timeout_s=1)
    try:
        identity = certificate_of_role("a").identity
        sender.connect({"a": Address(endpoint.address.place, identity)})
        endpoint.connect({"x": sender.address})
        with raises(ApplianceRuntimeServerError, "peer-not-authentic"):
            knock(sender)
        assert_nothing_arrives(endpoint)
    finally:
        sender.close()


def test_connection_without_tls_is_refused(endpoint: GrpcEndpoint) -> None:
    """Nothing in clear text reaches a role."""
    with grpc.insecure_channel(endpoint.address.place) as channel:
        send = channel.stream_unary("/waferstream.Link/Stream")
        with pytest.raises(grpc.RpcError):
            send(iter([b""]), metadata=(("session", "ours"), ("role", "a")), timeout=10)
    assert_nothing_arrives(endpoint)


def test_broken_stream_is_an_error_on_both_sides(
    endpoint: GrpcEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the receiver has no memory for a payload, neither side waits any longer."""

    def no_memory(*_: object) -> None:
        raise MemoryError("no memory for a payload")

    monkeypatch.setattr(grpc_link, "_read_payload", no_memory)
    peer = open_grpc("x", "ours", "127.0.0.1", start_timeout_s=10)
    try:
        peer.connect({"a": endpoint.address})
        endpoint.connect({"x": peer.address})
        with raises(ApplianceRuntimeServerError, "peer-gone"):
            knock(peer)
        with raises(ApplianceRuntimeServerError, "peer-gone") as caught:
            endpoint.receive(10)
        assert (caught.value.where, caught.value.value) == ("a", "x")
    finally:
        peer.close()


def test_role_cannot_send_in_the_name_of_another(
    endpoint: GrpcEndpoint, peer: GrpcEndpoint
) -> None:
    """A message whose source is not the role that sends it is an error."""
    peer.send(Envelope("y", "a", WeightsReleased(1, 0, 0)))
    with raises(ApplianceCorruptionError, "message-damaged"):
        endpoint.receive(10)


def test_payload_beyond_the_limit_is_refused(endpoint: GrpcEndpoint, peer: GrpcEndpoint) -> None:
    """The receiver allocates no more than its program needs."""
    slab = MemoryArena().allocate(65)
    endpoint.limit_payloads(64)
    peer.send(Envelope("x", "a", WeightsReady(1, 0, 0, slab)))
    with raises(ApplianceCorruptionError, "message-damaged"):
        endpoint.receive(10)


@pytest.mark.parametrize("frame", [b"", b"\xff" * 50, b"\0" * (2 * MIB)])
def test_garbage_on_a_stream_is_an_error(
    endpoint: GrpcEndpoint, peer: GrpcEndpoint, monkeypatch: pytest.MonkeyPatch, frame: bytes
) -> None:
    """A frame that is no header names the peer that sent it."""
    monkeypatch.setattr(grpc_link, "encode_header", lambda _: frame)
    peer.send(Envelope("x", "a", WeightsReleased(1, 0, 0)))
    with raises(ApplianceCorruptionError, "message-damaged") as caught:
        endpoint.receive(10)
    assert str(caught.value.value).startswith("from x")


def test_grpc_address_must_be_of_this_host() -> None:
    """An address of another host is refused at the start (203.0.113.0/24 is for examples)."""
    with raises(ClusterJobInitError, "address-unavailable"):
        open_grpc("a", "ours", "203.0.113.1", start_timeout_s=1)


def test_open_grpc_endpoint_does_not_delay_the_exit() -> None:
    """A process that fails before it closes its endpoints, with streams open, still ends."""
    code = (
        "from swarmx.links.grpc.link import open_grpc\n"
        "from waferstream.core.messages.messages import Envelope, WeightsReleased\n"
        "a = open_grpc('a', 'ours', '127.0.0.1', start_timeout_s=10)\n"
        "a.connect({'a': a.address})\n"
        "a.send(Envelope('a', 'a', WeightsReleased(1, 0, 0)))\n"
        "a.receive(10)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsSpec]:
    """Files of this host, from two authorities."""
    found = {}
    for name in ("ours", "theirs"):
        folder = tmp_path_factory.mktemp(name)
        authority = make_authority(name, timedelta(days=1))
        made = make_certificate(authority, ["127.0.0.1"], timedelta(days=1))
        (folder / "ca.pem").write_bytes(authority.certificate)
        (folder / "certificate.pem").write_bytes(made.certificate)
        (folder / "key.pem").write_bytes(made.key)
        (folder / "key.pem").chmod(0o600)
        paths = {part: folder / f"{part}.pem" for part in ("ca", "certificate", "key")}
        found[name] = TlsSpec(**paths)
    return found


@contextmanager
def between(first: TlsSpec, second: TlsSpec) -> Iterator[tuple[GrpcEndpoint, GrpcEndpoint]]:
    """Roles a and b that know each other, with certificates of their hosts."""
    a = open_grpc("a", "s", "127.0.0.1", 1, first)
    b = open_grpc("b", "s", "127.0.0.1", 1, second)
    try:
        for endpoint in (a, b):
            endpoint.connect({"a": a.address, "b": b.address})
        yield a, b
    finally:
        a.close()
        b.close()


def test_hosts_of_one_authority_exchange_messages(hosts: dict[str, TlsSpec]) -> None:
    """The certificates of ``runtime.tls`` serve both sides."""
    with between(hosts["ours"], hosts["ours"]) as (a, b):
        a.send(Envelope("a", "b", WeightsReleased(7, 0, 0)))
        assert b.receive(10).message.step == 7


def test_host_of_another_authority_is_refused(hosts: dict[str, TlsSpec]) -> None:
    """A certificate that the directory names must also be signed by the own authority."""
    with (
        between(hosts["ours"], hosts["theirs"]) as (a, _),
        raises(ApplianceRuntimeServerError, "peer-not-authentic"),
    ):
        a.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
