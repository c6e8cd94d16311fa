"""Files of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message

from waferstream.core.errors import WaferStreamError
from waferstream.serving.batches.files import FILE_BYTES, StoredFile
from waferstream.serving.batches.shelves import Shelf, Shelves
from waferstream.serving.http.access import caller_of
from waferstream.serving.http.errors import RefusedError, error_body, invalid, not_found, refusal


class Named(Protocol):
    """What a list of the API has."""

    @property
    def id(self) -> str:
        """Its name."""


Item = TypeVar("Item", bound=Named)


class Files:
    """The paths of files."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self.routes = [
            Route("/v1/files", self.upload, methods=["POST"]),
            Route("/v1/files", self.list, methods=["GET"]),
            Route("/v1/files/{name}", self.describe, methods=["GET"]),
            Route("/v1/files/{name}", self.delete, methods=["DELETE"]),
            Route("/v1/files/{name}/content", self.content, methods=["GET"]),
        ]

    async def upload(self, request: Request) -> Response:
        """Keep a file for a batch."""
        files = (await shelf_of(request, self._shelves)).files
        async with _uploaded(request) as (file, fields):
            if (purpose := fields.get("purpose")) != "batch":
                raise invalid("purpose", f"purpose must be 'batch', not {purpose!r}")
            unknown = fields.keys() - {"purpose", "file"}
            if unknown:
                raise invalid(min(unknown), f"parameter {min(unknown)} is not supported")
            try:
                kept = await asyncio.to_thread(files.add, file.file, file.filename or "file")
            except WaferStreamError as error:
                raise refusal(error) from error
        return JSONResponse(kept.model_dump())

    async def list(self, request: Request) -> Response:
        """List files, the newest first."""
        files = (await shelf_of(request, self._shelves)).files
        purpose = request.query_params.get("purpose")
        found = [each for each in files.all() if purpose in (None, each.purpose)]
        if request.query_params.get("order", "desc") == "desc":
            found.reverse()
        return JSONResponse(page(found, request, most=10_000))

    async def describe(self, request: Request) -> Response:
        """Describe a file."""
        _, file = await self._found(request)
        return JSONResponse(file.model_dump())

    async def content(self, request: Request) -> Response:
        """Return what is in a file."""
        shelf, file = await self._found(request)
        return FileResponse(shelf.files.content(file.id), media_type="application/jsonl")

    async def delete(self, request: Request) -> Response:
        """Remove a file that no batch reads."""
        shelf, file = await self._found(request)
        name = file.id
        if shelf.batches.uses(name):
            message = f"{name} is read by a batch; cancel it first"
            raise RefusedError(409, error_body(message, 409, code="file_in_use"))
        shelf.files.delete(name)
        return JSONResponse({"id": name, "object": "file", "deleted": True})

    async def _found(self, request: Request) -> tuple[Shelf, StoredFile]:
        shelf, name = await shelf_of(request, self._shelves), request.path_params["name"]
        if (file := shelf.files.get(name)) is None:
            raise not_found("file", name)
        return shelf, file


async def shelf_of(request: Request, shelves: Shelves) -> Shelf:
    """Return what who asks has kept here.

    Raises:
        RefusedError: The disk is full.
    """
    try:
        return await shelves.of(caller_of(request).name)
    except OSError as error:
        raise not_kept(error) from error


def page(items: Sequence[Item], request: Request, most: int, usual: int | None = None) -> Any:
    """Return a part of a list: ``limit`` items ``after`` one of them.

    Raises:
        RefusedError: There is no such item, or the limit is none.
    """
    query = request.query_params
    try:
        limit = int(query.get("limit", usual or most))
    except ValueError:
        limit = 0
    if not 1 <= limit <= most:
        raise invalid("limit", f"limit must be 1 to {most}")
    names = [each.id for each in items]
    if (after := query.get("after")) is not None and after not in names:
        raise invalid("after", f"after: {after!r} is not in the list")
    begin = 0 if after is None else names.index(after) + 1
    shown: list[Any] = list(items[begin : begin + limit])
    return {
        "object": "list",
        "data": [each.model_dump() for each in shown],
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
        "has_more": begin + limit < len(items),
    }


def not_kept(error: OSError) -> RefusedError:
    """Return what is said when the disk takes no more."""
    message = f"the service cannot keep this: {error.strerror}"
    return RefusedError(503, error_body(message, 503, code="storage_failed"))


@asynccontextmanager
async def _uploaded(request: Request) -> AsyncIterator[tuple[UploadFile, dict[str, Any]]]:
    """Receive the file and the fields of a form.

    Raises:
        RefusedError: It is too large, no such form, or the disk is full.
    """
    received = 0

    async def receive() -> Message:
        nonlocal received
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > FILE_BYTES:
            message_of_error = f"a file must have at most {FILE_BYTES} bytes"
            raise RefusedError(413, error_body(message_of_error, 413, code="file_too_large"))
        return message

    try:
        async with Request(request.scope, receive).form(max_files=1, max_fields=8) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise invalid("file", "file must be a file of a form (multipart/form-data)")
            yield file, dict(form)
    except HTTPException as error:
        raise invalid("file", error.detail) from error
    except OSError as error:
        raise not_kept(error) from error
