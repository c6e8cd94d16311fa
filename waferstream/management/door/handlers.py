"""What is behind the doors, and the operations that they bring to it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic_core import from_json

from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.management.model.operations import OPERATIONS, Caller, Operation

Result = TypeVar("Result")


class Handlers(Protocol):
    """A management, as its doors see it; several threads call it at once.

    Each method raises a typed error for what the caller must not do.
    """

    def do(self, caller: Caller, operation: Operation[Result]) -> Result:
        """Do what a caller asks for."""

    def newest_event(self) -> int:
        """Return the number of the newest event, at little cost."""

    def log_path(self, caller: Caller, workflow: str) -> Path:
        """Return the file with all that a workflow has printed, which may not be there yet."""

    def file_path(self, caller: Caller, workflow: str, path: str) -> Path:
        """Return where a file of a run is."""

    def upload_path(self) -> Path:
        """Return a new path for an upload."""

    def keep_package(self, caller: Caller, uploaded: Path) -> str:
        """Take an uploaded package in, and return its digest."""


def do_plain(handlers: Handlers, caller: Caller, name: str, given: Mapping[str, Any]) -> bytes:
    """Do an operation that came as plain data, and return its result as JSON."""
    operation = read_operation(name, given)
    return operation.result.dump_json(handlers.do(caller, operation))


def read_operation(name: str, given: Mapping[str, Any]) -> Operation[Any]:
    """Return an operation from plain data.

    Raises:
        ConfigError: There is none of this name, or the data are not its.
    """
    kind = OPERATIONS.get(name)
    if kind is None:
        raise ConfigError(
            "the operation must be one of this management",
            code="unknown-operation",
            value=name,
            remedy=did_you_mean(name, OPERATIONS),
        )
    return validate(kind, given, name)


def json_object(text: str | bytes | bytearray) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
        ConfigError: The text is none.
    """
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError("a message must be JSON", code="message-not-json", value=error) from error
    if not isinstance(found, dict):
        raise ConfigError(
            "a message must be an object of JSON",
            code="message-not-json",
            value=f"a {type(found).__name__}",
        )
    return found
