"""The application: all paths, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.accounts.callers import Anybody, Caller
from waferstream.serving.answers import Answers
from waferstream.serving.batches.shelves import Shelves
from waferstream.serving.http.access import Access, Own
from waferstream.serving.http.batches import Batches
from waferstream.serving.http.completions import Completions
from waferstream.serving.http.errors import RefusedError, check_model, error_body, refused
from waferstream.serving.http.files import Files
from waferstream.serving.http.metrics import Metrics
from waferstream.serving.http.pages import Pages
from waferstream.serving.http.request_ids import RequestIds
from waferstream.serving.http.tokens import Tokens
from waferstream.version import VERSION


def make_app(answers: Answers, folder: Path, accounts: Accounts | None = None) -> ASGIApp:
    """Return the service of a model.

    Args:
        answers: The model.
        folder: Where files and batches of clients lie.
        accounts: Who may ask; None for anybody.
    """
    completions, metrics = Completions(answers), Metrics(answers)
    shelves = Shelves(folder, lambda owner: partial(completions.ask, _owner(accounts, owner)))
    parts = (
        completions, Tokens(answers), Files(shelves), Batches(shelves), metrics, Own(),
        _About(answers), Pages(answers, accounts),
    )  # fmt: skip
    routes = [route for part in parts for route in part.routes]
    app = Starlette(
        routes=routes,
        exception_handlers={
            404: _no_path, 405: _no_path, RefusedError: _refused, ClientDisconnect: _left,
            Exception: _broken,
        },
        lifespan=lambda _: shelves.running(),
    )  # fmt: skip
    return RequestIds(metrics.counting(Access(app, accounts), routes))


def _owner(accounts: Accounts | None, name: str) -> Callable[[], Caller]:
    """Return what returns the owner of a batch, who may have been revoked meanwhile."""
    return Anybody if accounts is None else partial(accounts.named, name)


class _About:
    """The paths that say what is served."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._name = answers.model.name
        self._created = int(answers.model.weights.stat().st_mtime)  # they may be removed
        self.routes = [
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/tcp_warming", self.warm),
            Route("/health", self.health),
        ]

    async def health(self, _: Request) -> Response:
        """Say whether requests are answered, and what the service is."""
        is_well = self._answers.are_served
        about = {"model": self._name, "version": VERSION}
        status = {"status": "ok" if is_well else "failed", **about}
        return JSONResponse(status, status_code=200 if is_well else 503)

    async def warm(self, _: Request) -> Response:
        """Answer at once: the vendor's client opens its connection so before it asks."""
        return PlainTextResponse("")

    async def models(self, request: Request) -> Response:
        """List the one model."""
        _check_format(request)
        return JSONResponse({"object": "list", "data": [self._about()]})

    async def model(self, request: Request) -> Response:
        """Describe a model."""
        check_model(request.path_params["name"], self._name)
        _check_format(request)
        return JSONResponse(self._about())

    def _about(self) -> dict[str, Any]:
        return {
            "id": self._name, "object": "model", "created": self._created,
            "owned_by": "waferstream", "context_length": self._answers.model.context,
        }  # fmt: skip


def _check_format(request: Request) -> None:
    """Raise RefusedError for a description of models in the shape of another service."""
    if (asked := request.query_params.get("format", "default")) != "default":
        message = f"format {asked!r} is not supported; models are described as 'default' has it"
        raise RefusedError(400, error_body(message, 400, code="invalid_request", param="format"))


async def _no_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"{request.method} {request.url.path} does not exist here"
    return JSONResponse(error_body(message, status, code="unknown_url"), status_code=status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return refused(error)


async def _broken(_: Request, __: Exception) -> Response:
    """Say that the service is at fault; the server logs why."""
    return JSONResponse(error_body("the service has failed here", 500), status_code=500)


async def _left(_: Request, __: Exception) -> Response:
    """Say nothing: the client left before it had asked."""
    return Response(status_code=499)
