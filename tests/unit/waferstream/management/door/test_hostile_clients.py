"""Clients that send anything, or vanish: the doors stay open, and nothing of them is left."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.management.fake_handlers import FakeHandlers
from waferstream.core.errors import ApplianceResourceExhausted, WaferStreamError
from waferstream.core.traveling_errors import ERROR_KEY, decode_error
from waferstream.management.client.remote import RemoteClient
from waferstream.management.door import feed
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.model.event import Event
from waferstream.management.model.operations import OPERATIONS, Caller, Cancel, ReadVersion, Submit
from waferstream.management.model.workflow import Submission
from waferstream.management.wire.management_pb2 import (  # type: ignore[attr-defined]  # made at import
    Call,
    Chunk,
    Following,
    Wanted,
)
from waferstream.management.wire.service import DO, DOWNLOAD, FOLLOW, SERVICE, UPLOAD

METADATA = (("authorization", "Bearer wst-ann"),)

NAMES = sorted(OPERATIONS.keys() - {"Explain"})  # which the fake answers with a fault
FIELDS = sorted({field for kind in OPERATIONS.values() for field in kind.model_fields})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> FakeHandlers:
    made = FakeHandlers(tmp_path_factory.mktemp("management"))
    made.add("wst-ann", Caller(user="ann", role="administrator"))
    return made


@pytest.fixture(scope="module")
def doors(handlers: FakeHandlers) -> Iterator[Doors]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("waferstream.management.door.service.CALLS", 10**9)
        with Doors(handlers, handlers.authentication(), DoorSettings()) as opened:
            yield opened


@pytest.fixture(scope="module")
def channel(doors: Doors) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(doors.address) as made:
        yield made


@pytest.fixture(autouse=True)
def answers(doors: Doors) -> Iterator[None]:
    """Check that the doors are open after each test."""
    yield
    client = RemoteClient(doors.address, "wst-ann", patience_s=0.0)
    client.do(ReadVersion())
    client.close()


def failure_of(ask: Callable[[], Any]) -> WaferStreamError | None:
    """Return the typed error of a call, None if it succeeds."""
    try:
        ask()
    except grpc.RpcError as error:
        return decode_error(dict(error.trailing_metadata() or ())[ERROR_KEY])
    return None


def test_health_is_told_to_anybody(channel: grpc.Channel) -> None:
    asked = health_pb2.HealthCheckRequest(service=SERVICE)
    answer = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=30)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), given_json=JSON)
def test_any_json_is_an_operation_or_a_typed_error(
    channel: grpc.Channel, name: str, given_json: object
) -> None:
    call = Call(operation=name, json=json.dumps(given_json))
    error = failure_of(lambda: DO.caller(channel)(call, metadata=METADATA, timeout=30))
    assert error is None or error.code != "management-failed", error


@settings(max_examples=100, deadline=None)
@given(name=st.text(max_size=50), text=st.text(max_size=200))
def test_any_text_is_a_typed_error(channel: grpc.Channel, name: str, text: str) -> None:
    call = Call(operation=name, json=text)
    error = failure_of(lambda: DO.caller(channel)(call, metadata=METADATA, timeout=30))
    assert error is not None
    assert error.code in ("message-not-json", "unknown-operation")


@settings(max_examples=100, deadline=None)
@given(method=st.sampled_from(["Do", "Follow", "Upload", "Download"]), sent=st.binary())
def test_any_bytes_are_a_message_or_a_typed_error(
    channel: grpc.Channel, method: str, sent: bytes
) -> None:
    call = channel.unary_unary(f"/{SERVICE}/{method}")
    error = failure_of(lambda: call(b"\xff" + sent, metadata=METADATA, timeout=30))
    assert error is not None
    assert error.code == "message-damaged"


def test_deep_json_is_refused(channel: grpc.Channel) -> None:
    call = Call(operation="Submit", json='{"a":' * 100_000)
    error = failure_of(lambda: DO.caller(channel)(call, metadata=METADATA, timeout=30))
    assert error is not None
    assert error.code == "message-not-json"


def test_numbers_beyond_the_store_are_refused(channel: grpc.Channel) -> None:
    question = Following(after_event=2**64 - 1)
    error = failure_of(lambda: list(FOLLOW.caller(channel)(question, metadata=METADATA)))
    assert error is not None
    assert error.code == "out-of-range"


@settings(max_examples=60, deadline=None)
@given(sent=st.binary(max_size=300) | st.sampled_from([b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"]))
def test_any_bytes_on_the_door_of_http(doors: Doors, sent: bytes) -> None:
    host, _, port = doors.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as peer:
        peer.sendall(sent)


def test_message_that_is_too_large_is_refused(doors: Doors) -> None:
    client = RemoteClient(doors.address, "wst-ann", patience_s=0.0)
    submission = Submission(words=("x" * (5 << 20),))
    with raises(ApplianceResourceExhausted, "message-too-large"):
        client.do(Submit(submission=submission))
    client.close()


def test_client_that_vanishes_in_an_upload_leaves_no_file(
    channel: grpc.Channel, handlers: FakeHandlers
) -> None:
    vanished = threading.Event()

    def chunks() -> Iterator[Any]:
        yield Chunk(content=b"a" * 1000)
        vanished.wait(30)

    call = UPLOAD.caller(channel).future(chunks(), metadata=METADATA)
    until(lambda: bool(list(handlers.folder.glob(".*.partial"))))
    call.cancel()
    vanished.set()
    with pytest.raises(grpc.FutureCancelledError):
        call.result(timeout=30)
    until(lambda: not list(handlers.folder.glob(".*.partial")))


def test_client_that_vanishes_while_it_follows_is_forgotten(
    channel: grpc.Channel, handlers: FakeHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_FOLLOWED", 1)
    name = handlers.submit()

    def follows() -> bool:
        call = FOLLOW.caller(channel)(Following(workflow=name), metadata=METADATA, timeout=30)
        try:
            next(call)
        except grpc.RpcError:
            return False
        call.cancel()
        return True

    assert follows()
    until(follows)


def test_client_that_vanishes_in_a_download_ends_it(
    channel: grpc.Channel, handlers: FakeHandlers
) -> None:
    name = handlers.submit("ann")
    (handlers.folder / name).mkdir()
    (handlers.folder / name / "file").write_bytes(bytes(20 << 20))
    wanted = Wanted(workflow=name, path="file")
    call = DOWNLOAD.caller(channel)(wanted, metadata=METADATA, timeout=30)
    next(call)
    call.cancel()


def test_client_that_vanishes_from_http_is_forgotten(
    doors: Doors, handlers: FakeHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a body, and of a stream of events."""
    host, _, port = doors.url.removeprefix("http://").rpartition(":")
    head = f"Host: {host}\r\nAuthorization: Bearer wst-ann\r\n"
    upload = f"POST /v1/packages HTTP/1.1\r\n{head}Content-Type: application/octet-stream\r\n"
    with socket.create_connection((host, int(port)), timeout=5) as peer:
        peer.sendall(f"{upload}Content-Length: 1000000\r\n\r\nabc".encode())
        until(lambda: bool(list(handlers.folder.glob(".*.partial"))))
    until(lambda: not list(handlers.folder.glob(".*.partial")))
    with socket.create_connection((host, int(port)), timeout=5) as peer:
        peer.sendall(f"GET /v1/events?name={handlers.submit()} HTTP/1.1\r\n{head}\r\n".encode())
        assert peer.recv(10) == b"HTTP/1.1 2"


def test_client_goes_on_when_the_management_is_back(tmp_path_factory: Any) -> None:
    """A follower gets each event once, and an operation waits."""
    handlers = FakeHandlers(tmp_path_factory.mktemp("restarted"))
    handlers.add("wst-ann", Caller(user="ann"))
    name = handlers.submit()
    with Doors(handlers, handlers.authentication(), DoorSettings()) as doors:
        port = int(doors.address.rpartition(":")[2])
        client = RemoteClient(doors.address, "wst-ann")
        parts = client.follow(name)
        numbers = [part.number for part in [next(parts)] if isinstance(part, Event)]
    cancelled = Cancel(name=name)
    with Doors(handlers, handlers.authentication(), DoorSettings(port=port)):
        client.do(cancelled)
        numbers += [part.number for part in parts if isinstance(part, Event)]
    assert numbers == [1, 2]
    client.close()


def until(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Wait until a condition holds; AssertionError if it does not in time."""
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)
