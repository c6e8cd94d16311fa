"""Both doors of a management: the same operations give the same answers, and the same errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx
import pytest

from tests.support.errors import raises
from tests.support.management.fake_handlers import FakeHandlers
from waferstream.core.errors import (
    ApplianceUnknownError,
    ApplianceVersionError,
    ConfigError,
    RequestRefused,
    WaferStreamError,
)
from waferstream.core.traveling_errors import error_of
from waferstream.management.client import remote
from waferstream.management.client.remote import RemoteClient
from waferstream.management.door import service
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.model import operations as ask
from waferstream.management.model.event import Ended, Event, Submitted, Waits
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.model.workflow import Submission

Result = TypeVar("Result")

ANN, BOB, ROOT = "wst-ann", "wst-bob", "wst-root"


class AnyClient(Protocol):
    """What both doors offer."""

    def do(self, operation: Operation[Result]) -> Result: ...

    def follow(self, workflow: str, after_event: int = 0) -> Iterator[Event | bytes]: ...

    def upload(self, path: Path) -> str: ...

    def download(self, workflow: str, path: str, offset: int = 0) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class HttpClient:
    """The door of HTTP as a script uses it."""

    def __init__(self, url: str, token: str, **headers: str) -> None:
        shown = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=url, headers=shown | headers, timeout=30, verify=False)

    def do(self, operation: Operation[Result]) -> Result:
        body = operation.model_dump(mode="json")
        answer = self.http.post(f"/v1/do/{type(operation).__name__}", json=body)
        result: Result = operation.result.validate_json(self._checked(answer).content)
        return result

    def follow(self, workflow: str, after_event: int = 0) -> Iterator[Event | bytes]:
        query: Mapping[str, Any] = {"name": workflow, "after": after_event}
        with self.http.stream("GET", "/v1/events", params=query) as answer:
            self._checked(answer)
            kind = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "event":
                    yield Event.model_validate_json(value)
                elif name == "data" and kind == "log":
                    yield json.loads(value)["text"].encode()
                elif name == "data":
                    raise error_of(json.loads(value))

    def upload(self, path: Path) -> str:
        kind = {"content-type": "application/octet-stream"}
        answer = self.http.post("/v1/packages", content=path.read_bytes(), headers=kind)
        return str(self._checked(answer).json()["digest"])

    def download(self, workflow: str, path: str, offset: int = 0) -> Iterator[bytes]:
        place = f"/v1/workflows/{workflow}/files/{quote(path, safe='')}"
        yield self._checked(self.http.get(place, params={"offset": offset})).content

    def close(self) -> None:
        self.http.close()

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_error:
            answer.read()
            raise error_of(answer.json()["error"])
        return answer


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeHandlers, Doors]]:
    handlers = FakeHandlers(tmp_path_factory.mktemp("management"))
    with Doors(handlers, handlers.authentication(), DoorSettings()) as doors:
        yield handlers, doors


@pytest.fixture
def handlers(opened: tuple[FakeHandlers, Doors], tmp_path: Path) -> FakeHandlers:
    handlers, _ = opened
    handlers.begin(tmp_path)
    handlers.add(ANN, Caller(user="ann"))
    handlers.add(BOB, Caller(user="bob"))
    handlers.add(ROOT, Caller(user="root", role="administrator"))
    return handlers


@pytest.fixture
def doors(opened: tuple[FakeHandlers, Doors], handlers: FakeHandlers) -> Doors:
    return opened[1]


@pytest.fixture(params=["grpc", "http"])
def door(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def connect(doors: Doors, door: str, token: str) -> AnyClient:
    if door == "grpc":
        return RemoteClient(doors.address, token, patience_s=0.0)
    return HttpClient(doors.url, token)


@pytest.fixture
def ann(doors: Doors, door: str) -> Iterator[AnyClient]:
    client = connect(doors, door, ANN)
    yield client
    client.close()


def test_operation_is_done_and_its_result_is_typed(ann: AnyClient) -> None:
    workflow = ann.do(ask.Submit(submission=Submission(words=("fit",), labels={"a": "é"})))
    assert workflow.user == "ann"
    assert ann.do(ask.ReadWorkflow(name=workflow.name)) == workflow
    assert ann.do(ask.ListWorkflows()) == [workflow]
    assert ann.do(ask.Cancel(name=workflow.name)).result is Phase.CANCELLED


@pytest.mark.parametrize(
    ("operation", "kind", "code"),
    [
        (ask.ReadWorkflow(name="wflow-none"), ConfigError, "unknown-job"),
        (ask.DeleteSession(name="a"), RequestRefused, "role-forbids"),
        (ask.Explain(name="a"), ApplianceUnknownError, "management-failed"),
    ],
    ids=["missing", "forbidden", "failed"],
)
def test_error_arrives_as_it_was_raised(
    ann: AnyClient, operation: Operation[Any], kind: type[WaferStreamError], code: str
) -> None:
    with raises(kind, code):
        ann.do(operation)


def test_error_keeps_its_fields(ann: AnyClient) -> None:
    with raises(ConfigError, "unknown-job") as caught:
        ann.do(ask.ReadWorkflow(name="x" * 5000))
    assert str(caught.value.value).startswith("xxx")
    assert len(str(caught.value.value)) < 500


@pytest.mark.parametrize("token", ["", "wst-other"])
def test_who_shows_no_token_of_a_user_is_refused(doors: Doors, door: str, token: str) -> None:
    client = connect(doors, door, token)
    with raises(RequestRefused, "token-unknown" if token else "token-missing"):
        client.do(ask.ListWorkflows())
    with raises(RequestRefused, "token-unknown" if token else "token-missing"):
        list(client.follow(""))
    client.close()


def test_files_and_logs_are_for_their_user(doors: Doors, door: str, handlers: FakeHandlers) -> None:
    name = handlers.submit("bob")
    client = connect(doors, door, ANN)
    with raises(RequestRefused, "not-your-workflow"):
        list(client.follow(name))
    with raises(RequestRefused, "not-your-workflow"):
        list(client.download(name, "a"))
    client.close()


def test_follower_gets_events_and_log_until_the_end(ann: AnyClient, handlers: FakeHandlers) -> None:
    name, other = handlers.submit(), handlers.submit("bob")
    log = handlers.folder / f"{name}.log"
    log.write_bytes(b"one\n")
    parts = ann.follow(name)
    events, text = [next(parts)], next(parts)
    assert text == b"one\n"
    handlers.note(other, Waits(reason="of another"))
    handlers.note(name, Waits(reason="systems"))
    with log.open("ab") as file:
        file.write(b"two\n")
    handlers.note(name, Ended(result=Phase.SUCCEEDED))
    rest = list(parts)
    events += [part for part in rest if isinstance(part, Event)]
    assert [event.fact.kind for event in events if isinstance(event, Event)] == [
        "submitted", "waits", "ended",
    ]  # fmt: skip
    assert b"".join(part for part in rest if isinstance(part, bytes)) == b"two\n"


def test_follower_of_all_sees_nothing_private_of_others(
    ann: AnyClient, handlers: FakeHandlers
) -> None:
    handlers.submit()
    parts = ann.follow("")
    next(parts)
    name = handlers.submit("bob")
    facts = (part.fact for part in parts if isinstance(part, Event) and part.workflow == name)
    fact = next(facts)
    assert isinstance(fact, Submitted)
    assert (fact.user, fact.submission.words) == ("bob", ())


def test_follower_goes_on_after_an_event(ann: AnyClient, handlers: FakeHandlers) -> None:
    name = handlers.submit()
    first = handlers.newest_event()
    handlers.note(name, Ended(result=Phase.FAILED))
    numbers = [part.number for part in ann.follow(name, first) if isinstance(part, Event)]
    assert numbers == [first + 1]


def test_revoked_token_ends_what_its_user_follows(
    ann: AnyClient, handlers: FakeHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waferstream.management.door.following.CHECK_S", 0.1)
    parts = ann.follow(handlers.submit())
    next(parts)
    handlers.callers.clear()
    with raises(RequestRefused, "token-unknown"):
        list(parts)


def test_package_is_taken_whole(ann: AnyClient, handlers: FakeHandlers, tmp_path: Path) -> None:
    package = tmp_path / "package.zip"
    package.write_bytes(bytes(range(256)) * 20_000)
    digest = ann.upload(package)
    assert (handlers.folder / digest).read_bytes() == package.read_bytes()


def test_huge_package_is_refused_before_it_fills_the_disk(
    ann: AnyClient, handlers: FakeHandlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_PACKED_BYTES", 1000)
    package = tmp_path / "package.zip"
    package.write_bytes(bytes(5_000_000))
    with raises(ConfigError, "package-too-large"):
        ann.upload(package)
    assert not list(handlers.folder.glob(".*.partial"))


def test_file_is_read_from_a_place_on(ann: AnyClient, handlers: FakeHandlers) -> None:
    name = handlers.submit()
    (handlers.folder / name / "sub").mkdir(parents=True)
    content = bytes(range(256)) * 9000
    (handlers.folder / name / "sub" / "a b.bin").write_bytes(content)
    assert b"".join(ann.download(name, "sub/a b.bin")) == content
    assert b"".join(ann.download(name, "sub/a b.bin", 2_000_000)) == content[2_000_000:]
    assert b"".join(ann.download(name, "sub/a b.bin", 10**9)) == b""


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/etc/passwd", "a\0b", ""])
def test_path_that_escapes_is_refused(ann: AnyClient, handlers: FakeHandlers, path: str) -> None:
    name = handlers.submit()
    (handlers.folder / name).mkdir()
    (handlers.folder / "secret").write_text("secret")
    with pytest.raises(ConfigError) as caught:
        list(ann.download(name, path))
    assert caught.value.code in ("data-file-not-found", "path-escapes", "unknown-path")


def test_client_of_another_series_is_refused_unless_it_does_without(
    doors: Doors, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "VERSION", "9.9.9")
    made: AnyClient
    if door == "grpc":
        made = RemoteClient(doors.address, ANN)
        unchecked: AnyClient = RemoteClient(doors.address, ANN, checks_version=False)
    else:
        made = HttpClient(doors.url, ANN, **{"waferstream-version": "9.9.9"})
        unchecked = HttpClient(doors.url, ANN)
    with raises(ApplianceVersionError, "version-differs"):
        made.do(ask.ReadVersion())
    unchecked.do(ask.ReadVersion())
    made.close()
    unchecked.close()


def test_who_asks_too_often_is_told_when_to_ask_again(
    doors: Doors, door: str, handlers: FakeHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CALLS", 2)
    handlers.add("wst-eve", Caller(user=f"eve over {door}"))
    client = connect(doors, door, "wst-eve")
    with raises(RequestRefused, "rate-limit-exceeded") as caught:
        for _ in range(4):
            client.do(ask.ReadVersion())
    assert caught.value.retry_after_s is not None
    client.close()
