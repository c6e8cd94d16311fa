"""The explorer on loopback: the page, and answers to its questions as JSON."""

from __future__ import annotations

import gc
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from waferstream.core.error_status import status_of
from waferstream.core.errors import ConfigError, RequestRefused, WaferStreamError
from waferstream.explorer.ahead import Ahead
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.page import as_json, page_of
from waferstream.host.loopback import is_loopback

HOST = "127.0.0.1"
BODY_BYTES = 1 << 16
"""The largest question that is read."""


class Server:
    """Answers one question at a time; another process answers what may be asked next.

    Raises:
        ConfigError: The port is in use.
        WaferStreamError: The files have no answer.
    """

    def __init__(self, explorer: Explorer, port: int) -> None:
        """Listen on a port; 0 takes a free one."""
        self._explorer = explorer
        self._answering = Lock()
        self._page = page_of(explorer, {"": explorer.answer({})}, is_export=False).encode()
        gc.collect()
        gc.freeze()  # looking through captured steps takes tenths of a second
        self._ahead: Ahead | None = None
        handler = partial(_Handler, self._page, self.answer)
        try:
            self._http = ThreadingHTTPServer((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                "the port of the explorer must be free",
                code="explorer-port-in-use",
                where="--port",
                value=port,
                rule=str(error),
                remedy="--port 0 takes a free one",
            ) from error
        self.url = f"http://{HOST}:{self._http.server_port}/"

    def answer(self, settings: Any) -> dict[str, Any]:
        """Return the answer to a question as plain data."""
        if not isinstance(settings, dict):
            raise ConfigError(
                "a question must be an object of settings",
                code="wrong-type",
                value=type(settings).__name__,
                rule="names of sliders with their values",
            )
        with self._answering:
            if self._ahead is not None:
                self._ahead.move_to(settings)
            return as_json(self._explorer.answer(settings))

    def serve(self) -> None:
        """Answer until the process is interrupted."""
        self._ahead = Ahead(self._explorer, self._http.server_close)
        try:
            self._http.serve_forever(poll_interval=0.1)
        finally:
            self._http.server_close()
            self._ahead.close()

    def close(self) -> None:
        """Let ``serve`` of another thread return."""
        self._http.shutdown()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def __init__(self, page: bytes, answer: Callable[[Any], dict[str, Any]], *given: Any) -> None:
        self._page, self._answer = page, answer
        super().__init__(*given)

    def do_GET(self) -> None:
        """Return the page."""
        try:
            self._check("/")
        except WaferStreamError as error:
            return self._fail(error)
        return self._send(200, self._page, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """Answer a question."""
        try:
            self._check("/answer")
            answer = self._answer(self._question())
        except WaferStreamError as error:
            return self._fail(error)
        return self._send(200, json.dumps(answer).encode(), "application/json")

    def _check(self, path: str) -> None:
        """Refuse another path, and a name that a foreign page may have given to this host."""
        if not is_loopback(urlsplit(f"//{self.headers.get('host', '')}").hostname or ""):
            raise RequestRefused(
                "the explorer answers its own host alone",
                code="host-not-loopback",
                where="Host",
                value=self.headers.get("host"),
                rule="a name of loopback",
            )
        if urlsplit(self.path).path != path:
            raise RequestRefused(
                "there is no such path",
                code="unknown-path",
                where=self.path,
                rule="GET / and POST /answer",
            )

    def _question(self) -> Any:
        kind = self.headers.get("content-type", "").partition(";")[0]
        if kind != "application/json":  # all that a foreign page may send unasked is another
            raise RequestRefused(
                "a question must be JSON",
                code="body-of-other-type",
                where="Content-Type",
                value=kind or "none",
                rule="application/json",
            )
        length = self.headers.get("content-length", "")
        if not re.fullmatch(r"\d{1,9}", length) or int(length) > BODY_BYTES:
            self.close_connection = True
            raise RequestRefused(
                "a question must say its length, and be short",
                code="body-too-large",
                where="Content-Length",
                value=length or "none",
                rule=f"at most {BODY_BYTES:,} bytes",
            )
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                "a question must be JSON", code="question-not-json", value=error
            ) from error

    def _fail(self, error: WaferStreamError) -> None:
        body = json.dumps({"error": error.fields()}).encode()
        self._send(status_of(type(error), error.code).http, body, "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", _policy(self._page))
        self.send_header("x-content-type-options", "nosniff")
        self.send_header("referrer-policy", "no-referrer")
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a slider asks often."""


def _policy(page: bytes) -> str:
    """Return what the page may do: run its one script, and ask where it came from."""
    (script,) = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
