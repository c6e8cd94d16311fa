"""What the sections of params.yaml share: how absent keys are written, and how refusals read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from wsc.core.config import Config

MAX_STEP = 2**31 - 1
"""A step count fits a signed 32-bit integer (cluster_interface.md, section 2.2)."""

StepCount = Annotated[int, Field(ge=1, le=MAX_STEP)]
"""A number of steps, at least one."""

StepInterval = Annotated[int, Field(ge=0, le=MAX_STEP)]
"""Every so many steps; 0 means never."""


class Section(Config):
    """A mapping of params.yaml.

    Written back as plain data; a key that is None because nobody set it is left out.
    """

    model_config = ConfigDict(serialize_by_alias=True, ser_json_inf_nan="constants")

    def dump(self) -> dict[str, Any]:
        """The section as plain data, ready to be written as YAML."""
        return self.model_dump(mode="json")

    @model_serializer(mode="wrap")
    def plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What ``dump`` writes."""
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
"""Lets a list be written as its single entry, or as null when it is empty."""


def not_supported(remedy: str) -> PydanticCustomError:
    """The refusal of something that the vendor's layout knows and WaferStream does not."""
    return PydanticCustomError("not_supported", "known, but not supported yet", {"remedy": remedy})


def not_yet(*values: str, remedy: str) -> BeforeValidator:
    """Refuses single values."""

    def refuse(value: object) -> object:
        if value in values:
            raise not_supported(remedy)
        return value

    return BeforeValidator(refuse)


def _refuse_if_on(value: object) -> None:
    if value:
        raise not_supported("remove the key")


NotYet = Annotated[None, BeforeValidator(_refuse_if_on)]
"""A key that is refused unless it is switched off."""


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
