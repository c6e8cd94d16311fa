"""Bodies of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from waferstream.serving.http.errors import RefusedError, error_body, fault_of

Body = TypeVar("Body", bound=BaseModel)

BODY_BYTES = 1 << 20
"""The largest body that is read."""


async def read(request: Request, kind: type[Body]) -> Body:
    """Return the body of a request, checked."""
    kind_of_body = request.headers.get("content-type", "").partition(";")[0]
    if kind_of_body != "application/json":  # all that a foreign page may send unasked is another
        message = f"the body must be application/json, not {kind_of_body or 'of no type'}"
        raise RefusedError(415, error_body(message, 415, code="body_not_json"))
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            message = f"the body must have at most {BODY_BYTES} bytes"
            raise RefusedError(413, error_body(message, 413, code="body_too_large"))
    with _refusing():
        return kind.model_validate_json(bytes(body))


def checked(body: Mapping[str, Any], kind: type[Body]) -> Body:
    """Return a body that was read as JSON, checked."""
    with _refusing():
        return kind.model_validate(body)


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse what a model of a body does not allow."""
    try:
        yield
    except ValidationError as error:
        nearest = max(error.errors(), key=_nearness)
        message, param = fault_of(dict(nearest))
        body = error_body(message, 400, code="invalid_request", param=param)
        raise RefusedError(400, body) from error


def _nearness(fault: ErrorDetails) -> tuple[int, bool]:
    """Return how near a fault is to what was meant, where a value may have several types."""
    return len(fault["loc"]), not fault["type"].endswith("_type")
