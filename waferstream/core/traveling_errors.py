"""Typed errors between processes: the same class, code and fields on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json, to_json

from waferstream.core import errors
from waferstream.core.errors import (
    ApplianceUnknownError,
    NotFiniteStepError,
    RequestRefused,
    WaferStreamError,
)

ERROR_KEY = "waferstream-error-bin"
"""Trailing metadata of a call that has failed."""

_MOST_LETTERS = 400
"""Of a field. All metadata of a call has to fit into 8 KiB."""

_FIELDS = ("code", "where", "value", "rule", "remedy")


def error_fields(error: WaferStreamError) -> dict[str, Any]:
    """Return an error as plain data, its texts cut to what a header may hold."""
    fields: dict[str, Any] = {
        name: _cut(text) for name, text in error.fields().items() if text is not None
    }
    if isinstance(error, RequestRefused) and error.retry_after_s is not None:
        fields["retry_after_s"] = error.retry_after_s
    if isinstance(error, NotFiniteStepError):
        fields["step"] = error.step
    return fields


def encode_error(error: WaferStreamError) -> bytes:
    """Return an error as bytes."""
    return to_json(error_fields(error))


def decode_error(encoded: bytes) -> WaferStreamError:
    """Return the error that a server has encoded; what is none becomes ApplianceUnknownError."""
    try:
        return error_of(from_json(encoded))
    except ValueError:
        return error_of(None)


def error_of(fields: object) -> WaferStreamError:
    """Return the error with these fields, whatever they are."""
    if not isinstance(fields, dict) or not isinstance(fields.get("what"), str):
        return ApplianceUnknownError("the other side has failed", code="other-side-failed")
    kind = _KINDS.get(str(fields.get("kind")), ApplianceUnknownError)
    texts = {name: str(fields[name]) for name in _FIELDS if fields.get(name) is not None}
    error = kind(fields["what"], **{"code": "other-side-failed", **texts})
    after_s = fields.get("retry_after_s")
    if isinstance(error, RequestRefused) and isinstance(after_s, int | float):
        error.until(float(after_s))
    step = fields.get("step")
    if isinstance(error, NotFiniteStepError) and isinstance(step, int):
        error.step = step
    return error


def _cut(text: str) -> str:
    """Return a text that fits into a header, with its beginning."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MOST_LETTERS:
        return text
    return encoded[:_MOST_LETTERS].decode(errors="ignore") + "…"


def _classes(kind: type[WaferStreamError]) -> Iterator[type[WaferStreamError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _classes(each)


_KINDS = {
    each.__name__: each for each in _classes(WaferStreamError) if each.__module__ == errors.__name__
}
"""Classes of errors by name; those that packages of users define are unknown here."""
