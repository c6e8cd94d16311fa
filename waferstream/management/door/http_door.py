"""The door of HTTP: requests become calls of the service, and its errors statuses."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from waferstream.core.error_status import status_of
from waferstream.core.errors import ConfigError, RequestRefused, WaferStreamError
from waferstream.core.traveling_errors import error_fields
from waferstream.host.loopback import is_loopback
from waferstream.management.door.authentication import Shown
from waferstream.management.door.calls import typed
from waferstream.management.door.handlers import json_object
from waferstream.management.door.http_routes import ROUTES, Route, described, result_type, schemas
from waferstream.management.door.metrics import CONTENT_TYPE, exposition
from waferstream.management.door.service import Service
from waferstream.management.model.event import Event
from waferstream.management.model.telemetry import Numbers
from waferstream.management.wire.service import MOST_QUESTION_BYTES, VERSION_KEY
from waferstream.version import VERSION

_JSON, _BYTES = "application/json", "application/octet-stream"

_SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class HttpDoor:
    """The application of HTTP.

    Args:
        service: What answers.
        is_secret: Whether connections are encrypted; else names of loopback alone are answered.
        routers: Further paths, such as pages for people.
    """

    def __init__(
        self, service: Service, *, is_secret: bool, routers: Iterable[APIRouter] = ()
    ) -> None:
        self._service = service
        self._is_secret = is_secret
        self.app = FastAPI(
            title="WaferStream management", version=VERSION, docs_url=None, redoc_url=None,
            openapi_url="/v1/openapi.json", dependencies=[Depends(self._check_host)],
        )  # fmt: skip
        self._add_routes()
        for router in routers:
            self.app.include_router(router)
        self.app.exception_handler(WaferStreamError)(_refused)
        self.app.exception_handler(OSError)(_refused)
        self.app.exception_handler(RequestValidationError)(_not_allowed)
        self.app.exception_handler(HTTPException)(_no_path)
        self.app.exception_handler(Exception)(_refused)
        self._describe = self.app.openapi
        self.app.openapi = self._openapi  # type: ignore[method-assign]

    def _add_routes(self) -> None:
        for route in ROUTES:
            self.app.add_api_route(
                route.path,
                self._answer_to(route),
                methods=[route.method],
                responses={200: {"model": result_type(route.operation)}},
                summary=(route.operation.__doc__ or "").split("\n")[0],
                operation_id=route.operation.__name__,
                openapi_extra=described(route),
            )
        for path, answer, method in (
            ("/v1/do/{operation}", self._do, "POST"),
            ("/v1/events", self._events, "GET"),
            ("/v1/workflows/{name}/files/{path:path}", self._download, "GET"),
            ("/v1/packages", self._upload, "POST"),
            ("/health", self._health, "GET"),
            ("/metrics", self._metrics, "GET"),
        ):
            self.app.add_api_route(path, answer, methods=[method], response_model=None)

    def _answer_to(self, route: Route) -> Callable[[Request], Any]:
        """Return what answers a route."""

        async def answer(request: Request) -> Response:
            given = _query(request) if route.method == "GET" else await _body(request)
            return await self._done(request, route.operation.__name__, given | request.path_params)

        return answer

    async def _do(self, request: Request, operation: str) -> Response:
        """Do any operation."""
        return await self._done(request, operation, await _body(request))

    async def _done(self, request: Request, name: str, given: dict[str, Any]) -> Response:
        return Response(await self._service.do(_shown(request), name, given), media_type=_JSON)

    async def _events(
        self, request: Request, name: str = "", after: int = 0, log_offset: int = 0
    ) -> Response:
        """Stream the events of a workflow and its log, or the events of all workflows."""
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isdecimal() else after
        parts = self._service.follow(_shown(request), name, after, log_offset)
        first = await anext(parts, None)  # what is refused gets the status of its error
        return StreamingResponse(
            _server_sent(first, parts, log_offset),
            media_type="text/event-stream",
            headers=_SSE_HEADERS,
        )

    async def _download(self, request: Request, name: str, path: str, offset: int = 0) -> Response:
        """Return a file that a run has written."""
        contents = self._service.download(_shown(request), name, path, max(0, offset))
        first = await anext(contents, b"")

        async def all_contents() -> AsyncIterator[bytes]:
            async with aclosing(contents):
                yield first
                async for content in contents:
                    yield content

        return StreamingResponse(all_contents(), media_type=_BYTES)

    async def _upload(self, request: Request) -> Response:
        """Take the package of a working directory in."""
        _check_type(request, _BYTES)
        digest = await self._service.upload(_shown(request), request.stream())
        return JSONResponse({"digest": digest})

    async def _metrics(self, request: Request) -> Response:
        """Return all numbers in the text format of Prometheus."""
        numbers = await self._service.do(_shown(request), "ReadNumbers", {})
        return Response(exposition(Numbers.model_validate_json(numbers)), media_type=CONTENT_TYPE)

    async def _health(self) -> Response:
        """Say that the management answers."""
        return JSONResponse({"status": "ok", "version": VERSION})

    async def _check_host(self, request: Request) -> None:
        """Refuse a name that a foreign page may have given to this host, to read answers."""
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if not self._is_secret and not is_loopback(name):
            raise RequestRefused(
                "a management without certificates answers its own host",
                code="host-not-loopback",
                where="Host",
                value=name,
                rule="localhost, or an address of loopback",
                remedy="ask http://127.0.0.1, through ssh -L from elsewhere",
            )

    def _openapi(self) -> dict[str, Any]:
        """Return the description of all paths."""
        description = self._describe()
        components = description.setdefault("components", {}).setdefault("schemas", {})
        for name, schema in schemas().items():
            components.setdefault(name, schema)
        return description


def _shown(request: Request) -> Shown:
    headers = request.headers
    return Shown(headers.get("authorization", ""), headers.get(VERSION_KEY, ""))


def _query(request: Request) -> dict[str, Any]:
    """Return what a query asks for; ``labels`` are written ``key=value``."""
    given: dict[str, Any] = dict(request.query_params)
    if labels := request.query_params.getlist("labels"):
        given["labels"] = dict(each.partition("=")[::2] for each in labels)
    return given


async def _body(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request, which may be empty.

    Raises:
        ConfigError: It is none, or too large.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_QUESTION_BYTES:
            raise ConfigError(
                "the body is too large",
                code="body-too-large",
                rule=f"at most {MOST_QUESTION_BYTES:,} bytes",
            )
    if not content:
        return {}
    _check_type(request, _JSON)
    return json_object(content)


def _check_type(request: Request, wanted: str) -> None:
    """Refuse a body of another type: a foreign page may send only others without being asked."""
    found = request.headers.get("content-type", "").partition(";")[0].strip()
    if found != wanted:
        raise ConfigError(
            f"the body must be {wanted}", code="body-of-other-type", value=found or "no type"
        )


async def _refused(_: Request, error: Exception) -> Response:
    failure = typed(error)
    status = status_of(type(failure), failure.code).http
    after_s = failure.retry_after_s if isinstance(failure, RequestRefused) else None
    headers = None if after_s is None else {"retry-after": str(math.ceil(after_s))}
    return JSONResponse({"error": error_fields(failure)}, status, headers)


async def _not_allowed(request: Request, error: Exception) -> Response:
    return await _refused(
        request, ConfigError("a parameter is not allowed", code="not-allowed", value=error)
    )


async def _no_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    missing = ConfigError(
        f"{request.method} {request.url.path} is not answered here",
        code="unknown-path",
        remedy="/v1/openapi.json lists what is",
    )
    return JSONResponse({"error": error_fields(missing)}, status)


async def _server_sent(
    first: Event | bytes | None, parts: AsyncGenerator[Event | bytes], offset: int
) -> AsyncIterator[str]:
    """Yield parts as server-sent events; why they end, too, unless that is the end."""
    async with aclosing(parts):
        try:
            if first is not None:
                offset, text = _sent(first, offset)
                yield text
            async for part in parts:
                offset, text = _sent(part, offset)
                yield text
        except Exception as error:
            yield f"event: error\ndata: {json.dumps(error_fields(typed(error)))}\n\n"


def _sent(part: Event | bytes, offset: int) -> tuple[int, str]:
    """Return the place in the log after a part, and the part as a server-sent event."""
    if isinstance(part, Event):
        return offset, f"id: {part.number}\nevent: event\ndata: {part.model_dump_json()}\n\n"
    data = {"offset": offset, "text": part.decode(errors="replace")}
    return offset + len(part), f"event: log\ndata: {json.dumps(data)}\n\n"
