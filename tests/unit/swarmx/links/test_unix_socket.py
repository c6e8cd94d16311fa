"""Sockets between processes of a host: start order, long messages, names."""

import threading
import uuid
from collections.abc import Iterator

import pytest

from swarmx.links.unix_socket import SocketEndpoint
from tests.support.errors import raises
from wsc.core.errors import ApplianceDeadlockError, ClusterJobInitError
from wsc.core.messages import Envelope, NormPartial, WeightsReleased


@pytest.fixture
def session() -> str:
    return uuid.uuid4().hex


def open_endpoint(name: str, session: str, stall_timeout_s: float = 10) -> SocketEndpoint:
    return SocketEndpoint(name, session, start_timeout_s=10, stall_timeout_s=stall_timeout_s)


@pytest.fixture
def pair(session: str) -> Iterator[tuple[SocketEndpoint, SocketEndpoint]]:
    a, b = open_endpoint("a", session), open_endpoint("b", session)
    a.connect({"b": b.address})
    yield a, b
    a.close()
    b.close()


def test_sender_may_start_before_its_peer(session: str) -> None:
    """A message to a role that listens later arrives."""
    a = open_endpoint("a", session)
    a.connect({"b": a.address.removesuffix("a") + "b"})
    sender = threading.Thread(target=a.send, args=(Envelope("a", "b", WeightsReleased(5, 0, 0)),))
    sender.start()
    b = open_endpoint("b", session)
    try:
        assert b.receive(10).message.step == 5
    finally:
        sender.join()
        a.close()
        b.close()


@pytest.mark.parametrize("count", [3000, 3270, 3271, 3280, 10_000])
def test_message_of_any_length_arrives_whole(
    pair: tuple[SocketEndpoint, SocketEndpoint], count: int
) -> None:
    """Messages around and beyond one record are reassembled."""
    a, b = pair
    message = NormPartial(1, 2, tuple((i, i + 0.5) for i in range(count)))
    a.send(Envelope("a", "b", message))
    assert b.receive(10) == Envelope("a", "b", message)


def flood(endpoint: SocketEndpoint, envelope: Envelope) -> None:
    for _ in range(1000):
        endpoint.send(envelope)


def test_peer_that_does_not_read_is_a_deadlock(session: str) -> None:
    """A full buffer that stays full ends in an error after the stall time-out."""
    a, b = open_endpoint("a", session, stall_timeout_s=0.1), open_endpoint("b", session)
    a.connect({"b": b.address})
    message = NormPartial(1, 2, tuple((i, i + 0.5) for i in range(10_000)))
    try:
        with raises(ApplianceDeadlockError, "link-stalled"):
            flood(a, Envelope("a", "b", message))
    finally:
        a.close()
        b.close()


def test_socket_name_is_taken_once(session: str) -> None:
    """A second role of the same name in the same session cannot start."""
    first = open_endpoint("a", session)
    try:
        with raises(ClusterJobInitError, "address-unavailable"):
            open_endpoint("a", session)
    finally:
        first.close()


def test_socket_name_is_free_after_close(session: str) -> None:
    """A closed endpoint leaves nothing behind."""
    open_endpoint("a", session).close()
    second = open_endpoint("a", session)
    second.close()
    second.close()
