"""Configuration classes and YAML files: frozen, typed, strict about keys, precise in errors.

A configuration is plain data that is read once; objects are built from it and keep no reference.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import PydanticCustomError

from waferstream.core.config_errors import explain, unreadable
from waferstream.core.errors import ConfigError
from waferstream.core.yaml_errors import not_text, not_yaml
from waferstream.core.yaml_limits import MOST_BYTES, check_limits, too_deep
from waferstream.host.files import open_regular

Model = TypeVar("Model", bound="Config")


class Record(BaseModel):
    """Plain data that programs write for programs: immutable, and refuses unknown keys.

    It is read ten times as fast as a configuration, whose values people write.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, **data: Any) -> None:
        """Build one from a program's own values.

        Raises:
            ConfigError: It names the first wrong key.
        """
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise explain(type(self), data, error, type(self).__name__) from error

    # Else pydantic would call it for each configuration inside of another one, too.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Build a configuration from plain data, or return one as it is.

        Raises:
            ConfigError: It names the first wrong key.
        """
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise explain(cls, obj, error, cls.__name__) from error

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise self._frozen(name) from error

    def __delattr__(self, name: str) -> None:
        try:
            super().__delattr__(name)
        except ValidationError as error:
            raise self._frozen(name) from error

    def _frozen(self, name: str) -> ConfigError:
        return ConfigError(
            "a configuration cannot be changed",
            code="configuration-frozen",
            where=f"{type(self).__name__}.{name}",
            rule="its values are given when it is built",
            remedy="build another one",
        )


class Config(Record):
    """Base of every configuration class.

    A number must not be written as true or false, nor a path as nothing: pydantic alone would read
    1, 0 and the current folder.
    """

    model_config = ConfigDict(validate_default=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_silent_conversion(cls, given: Any, read: ValidatorFunctionWrapHandler) -> Any:
        value = read(given)
        if _boolean_became_number(given, value):
            raise PydanticCustomError("number_type", "a number, not true or false")
        if _nothing_became_path(given, value):
            raise PydanticCustomError(
                "empty_path", "a path of one letter at least", {"remedy": "write . for this folder"}
            )
        return value


_HAS_INPUT_TYPE = "json_schema_input_type" in inspect.signature(BeforeValidator).parameters
"""False for pydantic 2.8, which the vendor's Model Zoo pins; only JSON schemas need more."""


def before(convert: Callable[[Any], Any], written: Any) -> BeforeValidator:
    """Return a validator that converts what a file says before its type is checked.

    Args:
        convert: The conversion.
        written: The type of what the file may say, for JSON schemas.
    """
    if not _HAS_INPUT_TYPE:
        return BeforeValidator(convert)
    return BeforeValidator(convert, json_schema_input_type=written)


def _boolean_became_number(given: object, value: object) -> bool:
    """Return whether ``given`` has a boolean where ``value``, read from it, has a number."""
    match given, value:
        case Mapping(), Mapping():
            return any(_boolean_became_number(given[key], value.get(key)) for key in given)
        case list() | tuple(), list() | tuple():
            return any(map(_boolean_became_number, given, value))
    return isinstance(given, bool) and isinstance(value, int | float) and value is not given


def _nothing_became_path(given: object, value: object) -> bool:
    """Return whether ``given`` has an empty text where ``value``, read from it, has a path."""
    match given, value:
        case list() | tuple(), list() | tuple():
            return any(map(_nothing_became_path, given, value))
        case "", tuple():
            return any(isinstance(each, Path) for each in value)
    return given == "" and isinstance(value, Path)


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first_line: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # "<<: *anchor" may repeat its keys
                continue
            key = self.construct_object(key_node, deep=True)
            where = f"line {key_node.start_mark.line + 1}"
            if not isinstance(key, Hashable):
                raise ConfigError(
                    "a key must be a word or a number; got a list or mapping",
                    code="wrong-type",
                    where=where,
                    value=key,
                )
            if key in first_line:
                raise ConfigError(
                    f"key {key!r} occurs twice in one mapping",
                    code="duplicate-key",
                    where=f"{where}, first at line {first_line[key]}",
                    rule="keys of a mapping are unique",
                    remedy="keep one of the two",
                )
            first_line[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """A YAML writer without references, which quotes words that the loader reads as numbers."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


# YAML 1.1 reads "1e-3" as a string; in a configuration it is always meant as a number.
for _side in (_UniqueKeyLoader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ConfigError: The file is missing, malformed, or not a mapping.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(content) > MOST_BYTES:
        raise ConfigError(
            "the file is too large",
            code="file-too-large",
            where=str(path),
            rule=f"at most {MOST_BYTES} bytes",
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_text(str(path), content, error.reason) from error
    try:
        data = _plain_data(text)
    except ConfigError as error:
        raise _inside(str(path), error) from error
    except (yaml.YAMLError, ValueError) as error:
        raise not_yaml(str(path), text, error) from error
    if not isinstance(data, dict):
        raise ConfigError(
            "the file must be a mapping of keys to values",
            code="file-not-a-mapping",
            where=str(path),
            value="an empty file" if data is None else f"a {type(data).__name__}",
        )
    return data


def read_value(text: str, where: str) -> Any:
    """Return the value of a key as YAML reads it: ``512``, ``1e-3``, ``true``, ``[1, 2]``, a word.

    Raises:
        ConfigError: It has a list or mapping that does not end, or more of them than a file may;
            the error names ``where``.
    """
    try:
        return _plain_data(text)
    except ConfigError as error:
        raise _inside(where, error) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            "the value is not YAML", code="file-not-yaml", where=where, value=text
        ) from error


def _plain_data(text: str) -> Any:
    """Return the data of a YAML text, within the limits of a file."""
    loader = _UniqueKeyLoader(text)
    try:
        try:
            root = loader.get_single_node()
        except RecursionError as error:
            raise too_deep() from error
        if root is None:
            return None
        check_limits(root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Return plain data as ASCII YAML in the same order; ``load_yaml`` reads the same data."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False)


def validate(kind: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """Build a configuration from plain data.

    Args:
        kind: The configuration class.
        data: Plain data, as from YAML.
        where: Origin of the data: a file, a flag, or a key path inside a file. It precedes the
            ``where`` of a ConfigError that a validator raises itself.

    Raises:
        ConfigError: It names the first wrong key.
    """
    try:
        return validate_part(kind, dict(data))
    except ConfigError as error:
        raise _inside(where, error) from error
    except ValidationError as error:
        raise explain(kind, data, error, where) from error


def validate_part(kind: type[Model], data: object) -> Model:
    """Build a configuration within a validator of another one.

    Raises:
        ValidationError: Pydantic adds the key of the validated field to its keys.
    """
    return super(Record, kind).model_validate(data)


def _inside(outer: str, error: ConfigError) -> ConfigError:
    """Return the same error, with ``outer`` before its place."""
    return ConfigError(
        error.what,
        code=error.code,
        where=", ".join(filter(None, (outer, error.where))),
        value=error.value,
        rule=error.rule,
        remedy=error.remedy,
    )
