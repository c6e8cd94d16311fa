"""Configuration: frozen, typed, unknown and duplicate keys refused, errors that name the key.

A configuration is data, read once at the edge; objects are built from it and never look back.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from wsc.core.config_errors import explain
from wsc.core.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)


class Config(BaseModel):
    """Base of every configuration class: immutable, and no key that it does not know.

    Where a number is asked, true and false are refused; pydantic alone takes them for 1 and 0.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_boolean_for_a_number(cls, given: Any, read: ValidatorFunctionWrapHandler) -> Any:
        value = read(given)
        if _boolean_became_number(given, value):
            raise ValueError("a number, not true or false")
        return value


def _boolean_became_number(given: object, value: object) -> bool:
    """Whether a boolean stands in what was given where a number stands in what was read."""
    match given, value:
        case Mapping(), Mapping():
            return any(_boolean_became_number(given[key], value.get(key)) for key in given)
        case list() | tuple(), list() | tuple():
            return any(map(_boolean_became_number, given, value))
    return isinstance(given, bool) and isinstance(value, int | float) and value is not given


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
                    "a list or mapping stands as a key",
                    where=where,
                    value=key,
                    rule="keys are single words or numbers",
                )
            if key in first_line:
                raise ConfigError(
                    f"key {key!r} stands twice in one mapping",
                    where=f"{where}, first at line {first_line[key]}",
                    rule="keys of a mapping are unique",
                    remedy="keep one of the two",
                )
            first_line[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes a word that the loader would read as a number."""


# YAML 1.1 reads "1e-3" as a string; people who write learning rates mean the number.
for _side in (_UniqueKeyLoader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; ConfigError if it is missing, broken, or not a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "the file cannot be read", where=str(path), value=error.strerror
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("the file is not text", where=str(path), value=error.reason) from error
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)
    except ConfigError as error:
        raise _inside(str(path), error) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError("the file is not YAML", where=str(path), value=error) from error
    if not isinstance(data, dict):
        raise ConfigError(
            "the file holds no mapping", where=str(path), rule="a mapping of keys to values"
        )
    return data


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as ASCII YAML, in its own order; ``load_yaml`` reads the same data back."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False)


def validate(kind: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """Build a configuration from plain data; ConfigError names the first wrong key.

    ``where`` says where the data came from: a file, a flag, or a key path inside a file. A
    validator may raise a ConfigError itself, with the place inside the data as its ``where``.
    """
    try:
        return kind.model_validate(dict(data))
    except ConfigError as error:
        raise _inside(where, error) from error
    except ValidationError as error:
        raise explain(kind, data, error, where) from error


def _inside(outer: str, error: ConfigError) -> ConfigError:
    """The same error, its place preceded by the file or section that holds it."""
    return ConfigError(
        error.what,
        code=error.code,
        where=", ".join(filter(None, (outer, error.where))),
        value=error.value,
        rule=error.rule,
        remedy=error.remedy,
    )
