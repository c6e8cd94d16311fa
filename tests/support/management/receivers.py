"""A relay for mail and a webhook on this host, which keep what they get."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Webhook(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.status, self.got = status, list[tuple[str, Any]]()


class _Post(BaseHTTPRequestHandler):
    server: _Webhook

    def do_POST(self) -> None:
        """Keep what was posted."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, json.loads(content)))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _Relay(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.got = list[str]()


class _Smtp(socketserver.StreamRequestHandler):
    server: _Relay

    def handle(self) -> None:
        """Take one mail in (RFC 5321, as far as a client without extensions needs it)."""
        self._say("220 relay")
        while line := self.rfile.readline().decode().strip():
            if line.upper() == "DATA":
                self._say("354 go on")
                lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
                self.server.got.append("".join(lines))
            self._say("221 bye" if line.upper() == "QUIT" else "250 ok")
            if line.upper() == "QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def webhook(status: int = 200) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Yield the URL of a webhook, and the paths and contents that it gets."""
    with _Webhook(status) as server, _served(server):
        yield f"http://127.0.0.1:{server.server_port}", server.got


@contextmanager
def relay() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a relay for mail, and the mails that it gets."""
    with _Relay() as server, _served(server):
        yield f"127.0.0.1:{server.server_address[1]}", server.got


@contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
