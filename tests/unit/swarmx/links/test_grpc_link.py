"""gRPC between hosts: who is let in."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from swarmx.links import grpc_link
from swarmx.links.grpc_link import GrpcEndpoint
from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError, ClusterJobInitError
from wsc.core.messages import Envelope, WeightsReleased


@pytest.fixture
def endpoint() -> Iterator[GrpcEndpoint]:
    endpoint = GrpcEndpoint("a", "ours", "127.0.0.1", start_timeout_s=10)
    yield endpoint
    endpoint.close()


def knock(stranger: GrpcEndpoint) -> None:
    """Send to ``a`` and wait for what comes of it; the refusal may come before or after."""
    stranger.send(Envelope("x", "a", WeightsReleased(1, 0, 0)))
    stranger.receive(10)


def test_stranger_is_refused(endpoint: GrpcEndpoint) -> None:
    """A role of another session delivers nothing, and learns that it is not welcome."""
    stranger = GrpcEndpoint("x", "theirs", "127.0.0.1", start_timeout_s=10)
    try:
        stranger.connect({"a": endpoint.address})
        with pytest.raises(ApplianceRuntimeServerError, match="x lost its link to a"):
            knock(stranger)
        with pytest.raises(ApplianceDeadlockError):
            endpoint.receive(0.05)
    finally:
        stranger.close()


def test_both_sides_learn_of_a_stream_that_broke(
    endpoint: GrpcEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for a payload, for one: the receiver does not wait on for what cannot come."""

    def no_memory(*_: object) -> None:
        raise MemoryError("no memory for a payload")

    monkeypatch.setattr(grpc_link, "_read_payload", no_memory)
    peer = GrpcEndpoint("x", "ours", "127.0.0.1", start_timeout_s=10)
    try:
        peer.connect({"a": endpoint.address})
        with pytest.raises(ApplianceRuntimeServerError, match="x lost its link to a"):
            knock(peer)
        with pytest.raises(ApplianceRuntimeServerError, match="a lost its link to x"):
            endpoint.receive(10)
    finally:
        peer.close()


def test_address_must_be_of_this_host() -> None:
    """A host name that is not ours is refused at the start (203.0.113.0/24 is for examples)."""
    with pytest.raises(ClusterJobInitError, match="cannot listen"):
        GrpcEndpoint("a", "ours", "203.0.113.1", start_timeout_s=1)


def test_open_endpoint_does_not_keep_a_process() -> None:
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
