"""The door of HTTP: paths, their description, and what a foreign page cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.management.fake_handlers import FakeHandlers
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.door.http_routes import ROUTES, result_type
from waferstream.management.model.operations import Caller, Submit
from waferstream.management.model.workflow import Workflow


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> FakeHandlers:
    made = FakeHandlers(tmp_path_factory.mktemp("management"))
    made.add("wst-ann", Caller(user="ann", role="administrator"))
    return made


@pytest.fixture(scope="module")
def client(handlers: FakeHandlers) -> Iterator[httpx.Client]:
    shown = {"authorization": "Bearer wst-ann"}
    with (
        Doors(handlers, handlers.authentication(), DoorSettings()) as doors,
        httpx.Client(base_url=doors.url, headers=shown, verify=False) as made,
    ):
        yield made


def test_paths_answer_as_the_operations_do(client: httpx.Client) -> None:
    made = client.post("/v1/workflows", json={"submission": {"words": ["fit"]}}).json()
    name = made["name"]
    assert client.get(f"/v1/workflows/{name}").json() == made
    assert client.get("/v1/workflows", params={"limit": 1, "labels": "a=b"}).status_code == 200
    events = client.get(f"/v1/workflows/{name}/events", params={"after": 0}).json()
    assert [event["fact"]["kind"] for event in events] == ["submitted"]
    assert client.post(f"/v1/workflows/{name}/cancel").json()["result"] == "CANCELLED"


def test_every_path_is_described(client: httpx.Client) -> None:
    described = client.get("/v1/openapi.json").json()
    operations = {
        details["operationId"] for path in described["paths"].values() for details in path.values()
    }
    assert {route.operation.__name__ for route in ROUTES} <= operations
    text = str(described)
    names = {part.partition("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= described["components"]["schemas"].keys()


def test_result_of_an_operation_is_known() -> None:
    assert result_type(Submit) is Workflow


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"),
    [
        ("GET", "/v1/workflows", {"headers": {"host": "evil.example"}}, 403, "host-not-loopback"),
        ("POST", "/v1/workflows", {"data": {"a": "b"}}, 415, "body-of-other-type"),
        ("POST", "/v1/packages", {"data": {"a": "b"}}, 415, "body-of-other-type"),
        ("POST", "/v1/workflows", {"json": [1]}, 400, "message-not-json"),
        ("POST", "/v1/workflows", {"json": {"x": 1}}, 400, "unknown-key"),
        ("POST", "/v1/do/Explode", {"json": {}}, 400, "unknown-operation"),
        ("GET", "/v1/workflows/none", {}, 404, "unknown-job"),
        ("GET", "/v1/workflows", {"params": {"limit": "many"}}, 400, "wrong-type"),
        ("GET", "/v1/events", {"params": {"after": "x"}}, 400, "not-allowed"),
        ("GET", "/v1/events", {"params": {"after": "-1"}}, 400, "out-of-range"),
        ("GET", "/v1/nothing", {}, 404, "unknown-path"),
        ("PUT", "/v1/workflows", {}, 405, "unknown-path"),
        ("GET", "/v1/workflows", {"headers": {"authorization": "Basic a"}}, 401, "token-missing"),
        ("GET", "/v1/workflows", {"headers": {"authorization": "Bearer a"}}, 401, "token-unknown"),
    ],
)
def test_bad_request_is_a_typed_error(
    client: httpx.Client, method: str, path: str, options: dict[str, dict[str, str]],
    status: int, code: str,
) -> None:  # fmt: skip
    answer = client.request(method, path, **options)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_body_has_a_limit(client: httpx.Client, tmp_path: Path) -> None:
    answer = client.post("/v1/workflows", json={"submission": {"words": ["x" * 5_000_000]}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body-too-large")


def test_health_needs_no_token(client: httpx.Client) -> None:
    assert client.get("/health", headers={"authorization": ""}).json()["status"] == "ok"
