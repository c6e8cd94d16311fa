"""The explorer over HTTP: a page, answers, and 4xx with the fields of an error for the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from threading import Thread
from typing import Any

import pytest

from tests.support.runs.explored import tiny_explorer
from waferstream.core.errors import ConfigError
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.server import BODY_BYTES, HOST, Server

FIELDS = {"kind", "what", "code", "where", "value", "rule", "remedy"}
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(tiny_explorer(), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explorer, "moves_from", lambda *_: iter([{"clock": 10**9}, {"fan_out": 8}]))
        thread = Thread(target=server.serve)
        thread.start()
        yield server
        server.close()
        thread.join()


def ask(
    server: Server, method: str, path: str, body: Any = None, headers: Any = JSON
) -> tuple[int, str]:
    connection = HTTPConnection(HOST, int(server.url.rstrip("/").rpartition(":")[2]), timeout=60)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_page_and_answers_are_served(server: Server) -> None:
    status, page = ask(server, "GET", "/")
    assert (status, page[:15]) == (200, "<!doctype html>")
    status, text = ask(server, "POST", "/answer", json.dumps({"fan_out": 2, "systems": 4}))
    assert status == 200
    (point,) = [each for each in json.loads(text)["points"] if each["systems"] == 4]
    assert point["switches"] == [1, 2]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("POST", "/answer", '{"warp": 9}', JSON, 400, "unknown-key"),
        ("POST", "/answer", '{"batch": "many"}', JSON, 400, "wrong-type"),
        ("POST", "/answer", '{"batch": NaN}', JSON, 400, "wrong-type"),
        ("POST", "/answer", '{"fan_out": 8}', JSON, 400, "fan-out-exceeds-ports"),
        ("POST", "/answer", '{"layers": -1}', JSON, 400, "out-of-range"),
        ("POST", "/answer", "[1]", JSON, 400, "wrong-type"),
        ("POST", "/answer", "{", JSON, 400, "question-not-json"),
        ("POST", "/answer", "\xff", JSON, 400, "question-not-json"),
        ("POST", "/answer", "[" * 60000, JSON, 400, "question-not-json"),
        ("POST", "/answer", "{}", {"content-type": "text/plain"}, 415, "body-of-other-type"),
        ("POST", "/answer", " " * (BODY_BYTES + 1), JSON, 413, "body-too-large"),
        ("POST", "/", "{}", JSON, 404, "unknown-path"),
        ("GET", "/../etc/passwd", None, {}, 404, "unknown-path"),
        ("GET", "/", None, {"host": "evil.example"}, 403, "host-not-loopback"),
    ],
    ids=[
        "knob", "word", "nan", "rule", "range", "list", "half", "bytes", "deep", "type", "long",
        "post", "path", "host",
    ],
)  # fmt: skip
def test_nonsense_is_answered_with_its_error(
    server: Server, method: str, path: str, body: Any, headers: Any, status: int, code: str
) -> None:
    sent = body.encode("latin-1") if body else None
    found, text = ask(server, method, path, sent, headers)
    error = json.loads(text)["error"]
    assert (found, error["code"]) == (status, code)
    assert set(error) == FIELDS


def test_port_in_use_is_refused(server: Server) -> None:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    with pytest.raises(ConfigError) as caught:
        Server(server._explorer, port)
    assert caught.value.code == "explorer-port-in-use"
