"""Paths of the pages for people. They show and change nothing: ``waferstream ctl`` does.

Who signs in leaves the token in a cookie that scripts cannot read and other sites do not send.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from waferstream.core.error_status import status_of
from waferstream.core.errors import ConfigError, RequestRefused, WaferStreamError
from waferstream.management.door.authentication import Shown
from waferstream.management.door.calls import typed
from waferstream.management.door.service import Service
from waferstream.management.model.event import Event, Progressed
from waferstream.management.web import contents
from waferstream.management.web.asking import Asking
from waferstream.management.web.job import point
from waferstream.management.web.rendering import rendered

COOKIE = "waferstream_token"

PAGES = {"/": "Queue", "/cluster": "Cluster"}
"""The pages that each page leads to."""

LOG_TAIL_BYTES = 64 << 10
"""What a page shows of a log that is there already."""

_MOST_FORM_BYTES = 4096
_FOLDERS: list[str | tuple[str, str]] = [
    ("waferstream.management.web", "pages"),
    ("waferstream.management.web", "vendor"),
    ("waferstream.serving", "pages"),
    ("waferstream.reports", "."),
]
_ENDINGS = (".css", ".js", ".svg")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-cache",
}

Read = Callable[..., Awaitable[Mapping[str, Any]]]


def pages_router(service: Service) -> APIRouter:
    """Return the paths of the pages over a service."""
    return _Pages(service).router


class _Pages:
    """The pages over a service, behind ``router``."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._files = StaticFiles(packages=_FOLDERS)
        self.router = APIRouter(include_in_schema=False)
        answers: Mapping[str, Callable[..., Awaitable[Response]]] = {
            "/": self._page("queue", contents.queue),
            "/parts/queue": self._page("queue_part", contents.queue),
            "/cluster": self._page("cluster", contents.cluster),
            "/parts/cluster": self._page("cluster_part", contents.cluster),
            "/jobs/{name}": self._page("job", contents.job),
            "/parts/jobs/{name}": self._page("job_part", contents.job),
            "/jobs/{name}/curves": self._curves,
            "/jobs/{name}/news": self._news,
            "/jobs/{name}/pictures/{path:path}": self._picture,
            "/login": self._ask_token,
            "/pages/{file}": self._file,
        }
        for path, answer in answers.items():
            self.router.add_api_route(path, answer, methods=["GET"], response_model=None)
        self.router.add_api_route("/login", self._sign_in, methods=["POST"], response_model=None)
        self.router.add_api_route("/logout", self._sign_out, methods=["POST"], response_model=None)

    def _page(self, template: str, read: Read) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers the path of a page, or of a part of one."""

        async def answer(request: Request) -> Response:
            try:
                given = await read(self._asking(request), **request.path_params)
                return _html(request, template, given)
            except Exception as error:
                return _refused(request, typed(error))

        return answer

    async def _curves(self, request: Request, name: str) -> Response:
        """Return the points of the curves of a workflow."""
        try:
            found = await contents.curves(self._asking(request), name)
        except Exception as error:
            return _refused(request, typed(error))
        return Response(json.dumps(found), media_type="application/json", headers=_HEADERS)

    async def _news(self, request: Request, name: str, after: int = 0) -> Response:
        """Stream what happens to a workflow after an event, and what it prints."""
        last = request.headers.get("last-event-id", "")
        number = int(last) if last.isdecimal() else after
        parts = self._asking(request).follow(name, number, -LOG_TAIL_BYTES)
        return StreamingResponse(_told(parts), media_type="text/event-stream", headers=_HEADERS)

    async def _picture(self, request: Request, name: str, path: str) -> Response:
        """Return a picture that a run has written."""
        try:
            if not path.endswith(".png"):
                raise ConfigError(
                    "a page shows pictures alone", code="data-file-not-found", value=path
                )
            chunks = [chunk async for chunk in self._asking(request).file(name, path)]
        except Exception as error:
            return _refused(request, typed(error))
        return Response(b"".join(chunks), media_type="image/png", headers=_HEADERS)

    async def _ask_token(self, request: Request) -> Response:
        """Return the page on which one signs in."""
        return _html(request, "login", {"fault": ""})

    async def _sign_in(self, request: Request) -> Response:
        """Keep a token that is right."""
        try:
            token = await _token_of(request)
            await self._service.caller(Shown(f"Bearer {token}"))
        except WaferStreamError as error:
            return _html(request, "login", {"fault": str(error)}, 403)
        answer = RedirectResponse("/", 303, _HEADERS)
        is_secret = request.url.scheme == "https"
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_secret)
        return answer

    async def _sign_out(self) -> Response:
        """Forget the token."""
        answer = RedirectResponse("/login", 303, _HEADERS)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def _file(self, request: Request, file: str) -> Response:
        """Return a style, a script or a drawing of the pages."""
        if not file.endswith(_ENDINGS):
            return Response(status_code=404)
        found = await self._files.get_response(file, request.scope)
        found.headers.update(_HEADERS)
        return found

    def _asking(self, request: Request) -> Asking:
        return Asking(self._service, request.cookies.get(COOKIE, ""))


def _html(
    request: Request, template: str, given: Mapping[str, Any], status: int = 200
) -> HTMLResponse:
    shell = {"pages": PAGES, "path": request.url.path, "is_known": COOKIE in request.cookies}
    return HTMLResponse(rendered(template, {**shell, **given}), status, _HEADERS)


def _refused(request: Request, error: WaferStreamError) -> Response:
    """Return a page that states an error, or the one that asks for a token."""
    is_part = "hx-request" in request.headers
    if error.code in ("token-unknown", "token-missing"):
        if is_part:
            return Response(headers={**_HEADERS, "hx-redirect": "/login"})
        return RedirectResponse("/login", 303, _HEADERS)
    template = "error_part" if is_part else "error"
    status = status_of(type(error), error.code).http
    return _html(request, template, {"fault": str(error)}, status)


async def _token_of(request: Request) -> str:
    """Return the token in a form that this site has sent.

    Raises:
        RequestRefused: Another site has sent it, or there is none.
    """
    origin = urlsplit(request.headers.get("origin", "")).netloc
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM_BYTES:
            break
    tokens = parse_qs(body.decode("ascii", "replace")).get("token", [""])
    if origin != request.headers.get("host") or not tokens[0].isascii() or len(tokens) != 1:
        raise RequestRefused("one signs in with a token, on this page", code="token-missing")
    return quote(tokens[0].strip(), safe="")


async def _told(parts: AsyncGenerator[Event | bytes]) -> AsyncIterator[str]:
    """Yield news as server-sent events, and at last why there are no more.

    A comment comes at once, so that a page that is closed before there is news is noticed.
    """
    yield ": follows\n\n"
    async with aclosing(parts):
        try:
            async for part in parts:
                yield _news_of(part)
            yield "event: end\ndata: {}\n\n"
        except Exception as error:
            yield f"event: fault\ndata: {json.dumps(str(typed(error)))}\n\n"


def _news_of(part: Event | bytes) -> str:
    if isinstance(part, bytes):
        return f"event: log\ndata: {json.dumps(part.decode(errors='replace'))}\n\n"
    if isinstance(part.fact, Progressed):
        data = json.dumps(point(part.fact.progress))
        return f"id: {part.number}\nevent: point\ndata: {data}\n\n"
    return f"id: {part.number}\nevent: change\ndata: {{}}\n\n"
