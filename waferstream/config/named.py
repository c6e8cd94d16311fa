"""Things written as ``{ClassName: {arguments}}``: optimizers, schedulers, callbacks, loggers.

A family is a union of tagged classes,
``Annotated[Annotated[A, Tag("A")] | Annotated[B, Tag("B")], Discriminator(class_name)]``,
so that an error names the class, the argument, and the nearest word that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from waferstream.config.section import Section


class Named(Section):
    """One class with its arguments; the fields of a subclass are the arguments."""

    @property
    def class_name(self) -> str:
        """The name under which it stands in the file."""
        return type(self).__name__

    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as Python values."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @model_validator(mode="before")
    @classmethod
    def _unwrap(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and list(data) == [cls.__name__]:
            arguments = data[cls.__name__]
            return {} if arguments is None else arguments
        return data

    @model_serializer(mode="wrap")
    def plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """``{ClassName: {arguments}}`` as plain data."""
        return {self.class_name: super().plain(handler)}


def class_name(value: object) -> str | None:
    """The class that ``{ClassName: {arguments}}`` names; None if the shape is another."""
    if isinstance(value, Named):
        return value.class_name
    if isinstance(value, Mapping) and len(value) == 1:
        return str(next(iter(value)))
    return None
