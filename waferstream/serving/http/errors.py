"""Errors of the API, as OpenAI's clients read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from waferstream.core.error_status import status_of
from waferstream.core.errors import RequestRefused, WaferStreamError, did_you_mean

_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 402: "insufficient_balance",
    403: "permission_error", 404: "not_found_error", 429: "rate_limit_error",
}  # fmt: skip
"""The type of an error by its status; others are failures of the service."""


_BUSY_S = {"too-many-waiting": 1, "queue-full": 1}
"""After how many seconds a request may be repeated, by the code of an error of the engine."""


class RefusedError(Exception):
    """A request that is answered with an error, and may be repeated after some seconds."""

    def __init__(
        self, status: int, body: Mapping[str, Any], retry_after_s: int | None = None
    ) -> None:
        super().__init__(status)
        self.status, self.body, self.retry_after_s = status, body, retry_after_s


def error_body(
    message: str, status: int, *, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """Return the object that says why a request fails."""
    kind = _TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def invalid(param: str, message: str) -> RefusedError:
    """Return the refusal of a parameter."""
    return RefusedError(400, error_body(message, 400, code="invalid_request", param=param))


def not_found(kind: str, name: str) -> RefusedError:
    """Return the refusal of a name that is not there."""
    return RefusedError(404, error_body(f"there is no {kind} {name!r}", 404, code="not_found"))


def failure(error: WaferStreamError) -> tuple[int, dict[str, Any]]:
    """Return the status and the object of an error of ours."""
    status = status_of(type(error), error.code).http
    return status, error_body(str(error), status, code=error.code)


def refusal(error: WaferStreamError) -> RefusedError:
    """Return the refusal by an error of ours, with the time after which one may ask again."""
    after_s = error.retry_after_s if isinstance(error, RequestRefused) else _BUSY_S.get(error.code)
    return RefusedError(*failure(error), None if after_s is None else math.ceil(after_s))


def refused(error: RefusedError) -> Response:
    """Return the answer to a request that is refused."""
    after_s = error.retry_after_s
    headers = None if after_s is None else {"retry-after": str(after_s)}
    return JSONResponse(error.body, error.status, headers)


def fault_of(error: dict[str, Any]) -> tuple[str, str | None]:
    """Return a sentence about a fault that pydantic has found, and the parameter it is in."""
    names = [str(part) for part in error["loc"]]
    place = ".".join(name for name in names if not {"-", "["} & set(name))  # no types
    if error["type"] == "extra_forbidden":
        return f"parameter {place} is not supported", place
    rule = error["msg"].removeprefix("Value error, ")
    return f"{place}: {rule}" if place else rule, place or None


def check_model(asked: str, served: str) -> None:
    """Raise RefusedError unless a request asks for the model that is served."""
    if asked != served:
        hint = did_you_mean(asked, [served]) or f"this service has {served}"
        message = f"the model {asked!r} does not exist; {hint}"
        raise RefusedError(404, error_body(message, 404, code="model_not_found", param="model"))
