"""Base classes of the sections of params.yaml and validators that several sections share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from waferstream.core.config import Config, before

MAX_STEP = 2**31 - 1
"""A step count fits a signed 32-bit integer (Model Zoo 2.10, ``trainer/callbacks/loop.py``)."""

StepCount = Annotated[int, Field(ge=1, le=MAX_STEP)]
"""A number of steps, at least one."""

StepInterval = Annotated[int, Field(ge=0, le=MAX_STEP)]
"""An interval in steps; 0 means never."""


class Section(Config):
    """Mapping of params.yaml; a key that is None because it was not set is not written back."""

    model_config = ConfigDict(serialize_by_alias=True, ser_json_inf_nan="constants")

    def dump(self) -> dict[str, Any]:
        """Return the section as plain data for YAML."""
        return self.model_dump(mode="json")

    @model_serializer(mode="wrap")
    def plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize the section without keys that were not set."""
        data: dict[str, Any] = handler(self)
        fields = type(self).model_fields.items()
        optional = {field.alias or name for name, field in fields if field.default is None}
        return {
            key: value for key, value in data.items() if value is not None or key not in optional
        }


def _as_list(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, str | Mapping | Config) else value


one_or_many = BeforeValidator(_as_list)
"""Accept a single entry for a list of one, and null for an empty list."""


def not_supported(remedy: str) -> PydanticCustomError:
    """Build the error for a feature of the vendor's layout that WaferStream lacks."""
    return PydanticCustomError(
        "not_supported", "known to the real machine, not supported here", {"remedy": remedy}
    )


def _refuse_if_on(value: object) -> None:
    if value:
        raise not_supported("remove the key")


NotYet = Annotated[None, before(_refuse_if_on, Literal[False] | None)]
"""Type of a key that must be absent or switched off."""


class Named(Section):
    """Class name with arguments, written ``{ClassName: {arguments}}``.

    The fields of a subclass are the arguments. A family of classes is a tagged union,
    ``Annotated[Annotated[A, Tag("A")] | Annotated[B, Tag("B")], Discriminator(class_name)]``, so
    that an error names the class, the argument, and the nearest known word.
    """

    @property
    def class_name(self) -> str:
        """The class name as written in the file."""
        return type(self).__name__

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by name as Python values."""
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
        """Serialize to ``{ClassName: {arguments}}``."""
        return {self.class_name: super().plain(handler)}


def class_name(value: object) -> str | None:
    """Return the class name of ``{ClassName: {arguments}}``; None for any other shape."""
    if isinstance(value, Named):
        return value.class_name
    if isinstance(value, Mapping) and len(value) == 1:
        (name,) = value
        return name if isinstance(name, str) else None
    return None
