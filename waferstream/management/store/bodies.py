"""What a store keeps as JSON."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from waferstream.core.config import Record
from waferstream.core.errors import ConfigError
from waferstream.management.model.event import Fact

Body = TypeVar("Body", bound=Record)

_FACT: TypeAdapter[Fact] = TypeAdapter(Fact)


def read_body(kind: type[Body], body: str) -> Body:
    """Return what a store has kept as JSON.

    Raises:
        ConfigError: ``store-damaged``: another program has written it.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _damaged(kind.__name__, error) from error


def read_fact(body: str) -> Fact:
    """Return what an event says; ConfigError ``store-damaged``."""
    try:
        return _FACT.validate_json(body)
    except ValidationError as error:
        raise _damaged("Fact", error) from error


def _damaged(kind: str, error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False)[0]
    return ConfigError(
        f"a stored {kind} cannot be read",
        code="store-damaged",
        where=".".join(map(str, first["loc"])) or None,
        value=first["msg"],
        rule="only this package writes its store",
        remedy="restore the store from a backup",
    )
