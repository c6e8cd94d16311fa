"""The name of every request, by which a client and the log speak of it."""

from __future__ import annotations

import re
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"

_KEPT = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Names that a client may give; others are replaced, so that no header or log line is forged."""


class RequestIds:
    """The application with ``x-request-id`` on all that it answers, failures included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request under the name that its client gave, or a new one."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        name = given if _KEPT.fullmatch(given) else f"req_{uuid4().hex}"

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        await self._app(scope, receive, send_named)
