"""Configuration: frozen, typed, unknown and duplicate keys refused, errors that name the key.

A configuration is data, read once at the edge; objects are built from it and never look back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from wsc.core.errors import ConfigError, nearest

Model = TypeVar("Model", bound=BaseModel)


class Config(BaseModel):
    """Base of every configuration class: immutable, and no key that it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ConfigError(
                    f"key {key!r} stands twice in one mapping",
                    where=str(key_node.start_mark).strip(),
                    rule="keys of a mapping are unique",
                    remedy="keep one of the two",
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# YAML 1.1 reads "1e-3" as a string; people who write learning rates mean the number.
_UniqueKeyLoader.add_implicit_resolver(
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
        raise ConfigError(
            error.what, where=f"{path}, {error.where}", rule=error.rule, remedy=error.remedy
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError("the file is not YAML", where=str(path), value=error) from error
    if not isinstance(data, dict):
        raise ConfigError(
            "the file holds no mapping", where=str(path), rule="a mapping of keys to values"
        )
    return data


def validate(kind: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """Build a configuration from plain data; ConfigError names the first wrong key.

    ``where`` says where the data came from: a file, a flag, or a key path inside a file.
    """
    try:
        return kind.model_validate(dict(data))
    except ValidationError as error:
        raise _explain(kind, error, where) from error


def _explain(kind: type[BaseModel], error: ValidationError, where: str) -> ConfigError:
    first, *others = error.errors()
    path = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(others)} more)" if others else ""
    if first["type"] == "extra_forbidden":
        known = _known_keys(kind, first["loc"])
        guess = nearest(str(first["loc"][-1]), known)
        return ConfigError(
            f"unknown key {path!r}{more}",
            where=where,
            rule=f"known keys: {', '.join(sorted(known))}",
            remedy=f"did you mean {guess!r}?" if guess else None,
        )
    if first["type"] == "missing":
        return ConfigError(f"key {path!r} is missing{more}", where=where, rule=first["msg"])
    return ConfigError(
        f"value of {path!r} is not allowed{more}",
        where=where,
        value=repr(first.get("input")),
        rule=first["msg"].removeprefix("Value error, "),
    )


def _known_keys(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Keys allowed at the parent of ``path``, as far as nested models can be followed."""
    model: Any = kind
    for part in path[:-1]:
        info = getattr(model, "model_fields", {}).get(part)
        model = _model_in(info.annotation) if info else model
    fields = getattr(model, "model_fields", {})
    return [info.alias or name for name, info in fields.items()]


def _model_in(annotation: Any) -> Any:
    """The model class in an annotation such as ``X | None`` or ``tuple[X, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None
