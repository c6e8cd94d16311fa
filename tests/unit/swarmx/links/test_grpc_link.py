"""gRPC between hosts: refused peers, broken streams, invalid addresses."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from swarmx.links import grpc_link
from swarmx.links.grpc_link import GrpcEndpoint
from swarmx.links.memory import MemoryArena
from tests.support.errors import raises
from wsc.core.errors import (
    ApplianceCorruptionError,
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
)
from wsc.core.messages import Envelope, WeightsReady, WeightsReleased
from wsc.core.units import MIB


@pytest.fixture
def endpoint() -> Iterator[GrpcEndpoint]:
    endpoint = GrpcEndpoint("a", "ours", "127.0.0.1", start_timeout_s=10)
    endpoint.connect({})
    yield endpoint
    endpoint.close()


def knock(stranger: GrpcEndpoint) -> None:
    """Send to ``a`` and wait for an answer; a refusal may come before or after."""
    stranger.send(Envelope("x", "a", WeightsReady(1, 0, 0, MemoryArena().allocate(8))))
    stranger.receive(10)


def test_role_of_another_session_is_refused(endpoint: GrpcEndpoint) -> None:
    """A role of another session delivers nothing, and gets an error."""
    stranger = GrpcEndpoint("x", "theirs", "127.0.0.1", start_timeout_s=10)
    try:
        stranger.connect({"a": endpoint.address})
        with raises(ApplianceRuntimeServerError, "peer-gone"):
            knock(stranger)
        with raises(ApplianceDeadlockError, "link-stalled"):
            endpoint.receive(0.05)
    finally:
        stranger.close()


def test_broken_stream_is_an_error_on_both_sides(
    endpoint: GrpcEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the receiver has no memory for a payload, neither side waits any longer."""

    def no_memory(*_: object) -> None:
        raise MemoryError("no memory for a payload")

    monkeypatch.setattr(grpc_link, "_read_payload", no_memory)
    peer = GrpcEndpoint("x", "ours", "127.0.0.1", start_timeout_s=10)
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


@pytest.fixture
def peer(endpoint: GrpcEndpoint) -> Iterator[GrpcEndpoint]:
    """Role ``x`` of the same cluster."""
    peer = GrpcEndpoint("x", "ours", "127.0.0.1", start_timeout_s=10)
    peer.connect({"a": endpoint.address})
    endpoint.connect({"x": peer.address})
    yield peer
    peer.close()


def test_unknown_role_of_the_session_is_refused(endpoint: GrpcEndpoint) -> None:
    """A role that no directory names delivers nothing, and is counted."""
    stranger = GrpcEndpoint("x", "ours", "127.0.0.1", start_timeout_s=10)
    try:
        stranger.connect({"a": endpoint.address})
        with raises(ApplianceRuntimeServerError, "peer-gone"):
            knock(stranger)
        assert endpoint.refused == 1
    finally:
        stranger.close()


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
        GrpcEndpoint("a", "ours", "203.0.113.1", start_timeout_s=1)


def test_open_grpc_endpoint_does_not_delay_the_exit() -> None:
    """A process that fails before it closes its endpoints, with streams open, still ends."""
    code = (
        "from swarmx.links.grpc_link import GrpcEndpoint\n"
        "from wsc.core.messages import Envelope, WeightsReleased\n"
        "a = GrpcEndpoint('a', 'ours', '127.0.0.1', start_timeout_s=10)\n"
        "a.connect({'a': a.address})\n"
        "a.send(Envelope('a', 'a', WeightsReleased(1, 0, 0)))\n"
        "a.receive(10)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
