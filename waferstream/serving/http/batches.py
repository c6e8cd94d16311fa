"""Batches: many requests in one file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from waferstream.core.errors import WaferStreamError
from waferstream.serving.batches.batch import Batch
from waferstream.serving.batches.shelves import Shelf, Shelves
from waferstream.serving.http.bodies import read
from waferstream.serving.http.errors import RefusedError, error_body, invalid, not_found, refusal
from waferstream.serving.http.files import not_kept, page, shelf_of

Word = Annotated[str, Field(max_length=512)]


class BatchRequest(BaseModel):
    """The body of ``POST /v1/batches``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[Word, Word], Field(max_length=16)] | None = None


class Batches:
    """The paths of batches."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self.routes = [
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches", self.list, methods=["GET"]),
            Route("/v1/batches/{name}", self.describe, methods=["GET"]),
            Route("/v1/batches/{name}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Begin a batch of a file."""
        asked = await read(request, BatchRequest)
        shelf = await shelf_of(request, self._shelves)
        file = shelf.files.get(asked.input_file_id)
        if file is None:
            raise not_found("file", asked.input_file_id)
        if file.purpose != "batch":
            raise invalid("input_file_id", f"{file.id} has the purpose {file.purpose}, not batch")
        batch = Batch.new(asked.endpoint, file.id, asked.metadata)
        try:
            shelf.batches.add(batch)
        except WaferStreamError as error:
            raise refusal(error) from error
        except OSError as error:
            raise not_kept(error) from error
        return JSONResponse(batch.model_dump())

    async def list(self, request: Request) -> Response:
        """List batches, the newest first."""
        batches = (await shelf_of(request, self._shelves)).batches
        return JSONResponse(page(batches.all()[::-1], request, most=100, usual=20))

    async def describe(self, request: Request) -> Response:
        """Describe a batch."""
        _, batch = await self._found(request)
        return JSONResponse(batch.model_dump())

    async def cancel(self, request: Request) -> Response:
        """Let no further request of a batch be answered."""
        shelf, batch = await self._found(request)
        if batch.has_ended:
            message = f"{batch.id} has ended: it is {batch.status}"
            raise RefusedError(409, error_body(message, 409, code="batch_ended"))
        if batch.status != "cancelling":
            shelf.batches.cancel(batch.id)
        _, batch = await self._found(request)
        return JSONResponse(batch.model_dump())

    async def _found(self, request: Request) -> tuple[Shelf, Batch]:
        shelf, name = await shelf_of(request, self._shelves), request.path_params["name"]
        if (batch := shelf.batches.get(name)) is None:
            raise not_found("batch", name)
        return shelf, batch
