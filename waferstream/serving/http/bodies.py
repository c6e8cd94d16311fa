"""Bodies of requests."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from waferstream.serving.http.errors import RefusedError, error_body, fault_of

Body = TypeVar("Body", bound=BaseModel)

BODY_BYTES = 1 << 20
"""The largest body that is read."""


async def read(request: Request, kind: type[Body]) -> Body:
    """Return the body of a request, checked."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            message = f"the body must have at most {BODY_BYTES} bytes"
            raise RefusedError(413, error_body(message, 413, code="body_too_large"))
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        message, param = fault_of(dict(error.errors()[0]))
        body_of_error = error_body(message, 400, code="invalid_request", param=param)
        raise RefusedError(400, body_of_error) from error
