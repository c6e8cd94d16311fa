"""Sockets between processes of a host: start order, long messages, names."""

import pickle
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from swarmx.links.endpoint import Address
from swarmx.links.memory import MemoryArena, SharedArena
from swarmx.links.unix.link import SocketEndpoint
from swarmx.links.wire.messages import MOST_HEADER_BYTES
from tests.support.errors import raises
from tests.support.roles.envelopes import payload_of
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
)
from waferstream.core.messages.messages import Envelope, NormPartial, WeightsReady, WeightsReleased
from waferstream.core.units import KIB


@pytest.fixture
def session() -> str:
    return uuid.uuid4().hex


def open_endpoint(name: str, session: str, stall_timeout_s: float = 10) -> SocketEndpoint:
    return SocketEndpoint(name, session, start_timeout_s=10, stall_timeout_s=stall_timeout_s)


@pytest.fixture
def pair(session: str) -> Iterator[tuple[SocketEndpoint, SocketEndpoint]]:
    a, b = open_endpoint("a", session), open_endpoint("b", session)
    for endpoint in (a, b):
        endpoint.connect({"a": a.address, "b": b.address})
    yield a, b
    a.close()
    b.close()


def test_sender_may_start_before_its_peer(session: str) -> None:
    """A message to a role that listens later arrives."""
    a = open_endpoint("a", session)
    place, identity, *_ = a.address
    a.connect({"b": Address(place.removesuffix("a") + "b", identity)})
    sender = threading.Thread(target=a.send, args=(Envelope("a", "b", WeightsReleased(5, 0, 0)),))
    sender.start()
    b = open_endpoint("b", session)
    b.connect({"a": a.address})
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


OTHER_PROCESS = "1"


def test_name_of_a_role_held_by_another_process_is_refused(session: str) -> None:
    """A sender finds another process at the address of its peer, and sends nothing."""
    a, b = open_endpoint("a", session), open_endpoint("b", session)
    a.connect({"b": Address(b.address.place, OTHER_PROCESS)})
    try:
        with raises(ApplianceRuntimeServerError, "peer-not-authentic"):
            a.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
    finally:
        a.close()
        b.close()


@pytest.mark.parametrize("directory", [{}, {"a": Address("", OTHER_PROCESS)}])
def test_stranger_is_dropped_and_counted(session: str, directory: dict[str, Address]) -> None:
    """A process that is not the role it claims to be delivers nothing; others still do."""
    stranger, b = open_endpoint("a", session), open_endpoint("b", session)
    stranger.connect({"b": b.address})
    b.connect({"b": b.address, **directory})
    try:
        stranger.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
        b.send(Envelope("b", "b", WeightsReleased(2, 0, 0)))
        assert b.receive(10).message.step == 2
        with raises(ApplianceDeadlockError, "link-stalled"):
            b.receive(0.05)
        assert b.refused == 1
        with raises(ApplianceRuntimeServerError, "peer-gone"):
            stranger.receive(10)
    finally:
        stranger.close()
        b.close()


class Bomb:
    """An object whose pickle writes a file where it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (self.path, "w")


def test_message_runs_no_code(pair: tuple[SocketEndpoint, SocketEndpoint], tmp_path: Path) -> None:
    """A pickle in place of a message is damage, and is not read."""
    a, b = pair
    a.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
    assert b.receive(10).message.step == 1
    trace = tmp_path / "trace"
    a._send_record("b", b"." + pickle.dumps(Bomb(str(trace))))
    with raises(ApplianceCorruptionError, "message-damaged"):
        b.receive(10)
    assert not trace.exists()


def test_message_without_end_is_refused(pair: tuple[SocketEndpoint, SocketEndpoint]) -> None:
    """A peer cannot fill the memory of another with pieces of one message."""
    a, b = pair
    b.limit_payloads(0)
    a.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
    assert b.receive(10).message.step == 1
    with raises(ApplianceCorruptionError, "message-damaged"):
        for _ in range(MOST_HEADER_BYTES // (32 * KIB) + 1):
            a._send_record("b", b"+" + bytes(32 * KIB))
            b._poll(0)


def test_payload_outside_of_shared_memory_is_copied(
    pair: tuple[SocketEndpoint, SocketEndpoint],
) -> None:
    """Bytes that only the sender can read travel in the message."""
    a, b = pair
    slab = MemoryArena().allocate(100_000)
    slab.view(torch.uint8).copy_(torch.arange(100_000) % 251)
    a.send(Envelope("a", "b", WeightsReady(1, 0, 0, slab)))
    got = payload_of(b.receive(10)).view(torch.uint8)
    assert torch.equal(got, slab.view(torch.uint8))


def test_payload_beyond_the_limit_is_refused(pair: tuple[SocketEndpoint, SocketEndpoint]) -> None:
    """A payload is at most as large as the program needs."""
    a, b = pair
    b.limit_payloads(64)
    a.send(Envelope("a", "b", WeightsReady(1, 0, 0, SharedArena().allocate(65))))
    with raises(ApplianceCorruptionError, "message-damaged"):
        b.receive(10)


def test_role_cannot_send_in_the_name_of_another(
    pair: tuple[SocketEndpoint, SocketEndpoint],
) -> None:
    """A message whose source is not the role that sends it is an error."""
    a, b = pair
    a.send(Envelope("c", "b", WeightsReleased(1, 0, 0)))
    with raises(ApplianceCorruptionError, "message-damaged"):
        b.receive(10)


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


def test_roles_of_a_process_share_an_address(
    pair: tuple[SocketEndpoint, SocketEndpoint], session: str
) -> None:
    """Messages between any two roles at the ends of a connection arrive, and no others."""
    a, b = pair
    other = open_endpoint("other", session)
    directory = {"a-1": a.address, "b-1": b.address, "other": other.address}
    for endpoint in pair:
        endpoint.connect(directory)
    for route in (("a", "b-1"), ("a-1", "b")):
        a.send(Envelope(*route, WeightsReleased(1, 0, 0)))
        received = b.receive(10)
        assert (received.source, received.target) == route
    a.send(Envelope("other", "b", WeightsReleased(1, 0, 0)))
    with raises(ApplianceCorruptionError, "message-damaged"):
        b.receive(10)
    other.close()
