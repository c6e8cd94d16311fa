"""Convert a pydantic error to a ConfigError that names key, value, rule and remedy.

The first problem is reported in full: the key as written in the file, its value, every rule that
the value could have met, and the nearest known word. An unknown key comes first, because a
misspelt key is often the reason why another one is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from waferstream.core.errors import ConfigError, did_you_mean

_MOST_LISTED = 12  # known words that are listed beside the nearest one
_BOUNDS = ("greater_than", "less_than", "too_short", "too_long", "finite_number", "multiple_of")

_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a text",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
"""Rules by the kind of a problem, where pydantic speaks of its own reading."""

_Location = tuple[int | str, ...]


def explain(
    kind: type[BaseModel], data: object, invalid: ValidationError, where: str
) -> ConfigError:
    """Return the ConfigError for what pydantic found wrong in ``data`` read as a ``kind``."""
    problems = invalid.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    paths = [_path(data, problem) for problem in problems]
    first, path = problems[0], paths[0]
    same = [problem for problem, other in zip(problems, paths, strict=True) if other == path]
    others = len(set(paths)) - 1
    more = f" (and {others} more)" if others else ""
    match first["type"]:
        case "extra_forbidden":
            known = _known_keys(kind, first["loc"])
            word = str(first["loc"][-1])
            error = unknown(f"key {path!r}{more}", "keys", word, known, where)
            error.remedy = error.remedy or _elsewhere(kind, word)
            return error
        case "missing":
            return ConfigError(f"key {path!r} is missing{more}", code="missing-key", where=where)
        case "union_tag_invalid":
            known = _known_classes(kind, first["loc"])
            tag = str(first["ctx"]["tag"])
            return unknown(f"class {tag!r} at {path!r}{more}", "classes", tag, known, where)
        case "union_tag_not_found":
            code = "missing-class"
            known = _known_classes(kind, first["loc"])
            rules = [f"one class with its arguments; known classes: {', '.join(known)}"]
        case _:
            code = _code(same)
            rules = list(dict.fromkeys(map(rule_of, same)))
    value = first["input"]
    return ConfigError(
        f"{f'value of {path!r}' if path else f'a {kind.__name__}'} is not allowed{more}",
        code=code,
        where=where,
        value=None if isinstance(value, Mapping | BaseModel) else repr(value),
        rule="; or: ".join(rules),
        remedy=next(filter(None, map(_remedy, same)), None),
    )


def rule_of(problem: ErrorDetails) -> str:
    """Return the rule that a value violates."""
    words = _WORDS.get(problem["type"])
    if words is None:
        return problem["msg"].removeprefix("Value error, ")
    return words.format(**problem.get("ctx", {}))


def unreadable(path: Path, error: OSError) -> ConfigError:
    """Return the ConfigError for a file that the system does not let us read."""
    return ConfigError(
        "the file cannot be read",
        code="file-not-readable",
        where=str(path),
        value=error.strerror,
        remedy=_other_file(path),
    )


def _other_file(path: Path) -> str | None:
    """Return the remedy for a file that is not there, or is a folder."""
    if (path / "config.json").exists():
        return (
            f"of a model of transformers: waferstream checkpoint convert-config {path}/config.json "
            "--src-fmt hf --tgt-fmt cs-current --model FAMILY"
        )
    if path.exists():
        return None
    guess = did_you_mean(str(path), map(str, path.parent.glob(f"*{path.suffix}")))
    return guess or "correct the path"


def unknown(what: str, noun: str, word: str, known: Sequence[str], where: str) -> ConfigError:
    """Return the error for an unknown key or class.

    Args:
        what: The key or class with its place, as for the message.
        noun: ``keys`` or ``classes``.
        word: The unknown word itself.
        known: All known words; listed unless they are many and one is similar to ``word``.
        where: The file, flag or section.
    """
    remedy = did_you_mean(word, known)
    listed = remedy is None or len(known) <= _MOST_LISTED
    return ConfigError(
        f"unknown {what}",
        code={"keys": "unknown-key", "classes": "unknown-class"}[noun],
        where=where,
        rule=f"known {noun}: {', '.join(known)}" if listed else None,
        remedy=remedy,
    )


def _code(problems: Sequence[ErrorDetails]) -> str:
    """Return the code for what pydantic says of one value; it tries every type of a union."""
    kinds = [problem["type"] for problem in problems]
    if any(kind.startswith(_BOUNDS) for kind in kinds):
        return "out-of-range"
    if all(kind in {"literal_error", "enum"} for kind in kinds):
        return "not-one-of"
    if any(kind.endswith(("_type", "_parsing", "_from_float")) for kind in kinds):
        return "wrong-type"
    return "not-allowed"


def _remedy(problem: ErrorDetails) -> str | None:
    """Return a validator's remedy, or the allowed word nearest to the one that was written."""
    context, value = problem.get("ctx", {}), problem["input"]
    allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    guess = did_you_mean(value, allowed) if isinstance(value, str) else None
    return str(context["remedy"]) if "remedy" in context else guess


def _path(data: Any, problem: ErrorDetails) -> str:
    """Return the path of a problem in the file: ``callbacks[0].KeepNCheckpoints.n``.

    Pydantic's location also names union members, which the file does not have; only parts that
    exist in the data are kept.
    """
    path = ""
    *parents, last = problem["loc"] or ("",)
    for part in (*parents, last):
        match data, part:
            case Mapping(), _ if part in data:
                path, data = f"{path}.{part}", data[part]
            case list() | tuple(), int() if part < len(data):
                path, data = f"{path}[{part}]", data[part]
    if problem["type"] == "missing":
        path = f"{path}.{last}"
    return path.removeprefix(".")


def _elsewhere(kind: type[BaseModel], word: str, above: str = "") -> str | None:
    """Return the remedy for a key that belongs into another section; None if there is none."""
    for name, field in _fields_by_key(kind).items():
        for section in _models_in(field.annotation):
            path = f"{above}{name}."
            if word in _fields_by_key(section):
                return f"did you mean {path}{word}? Write it into that section"
            if found := _elsewhere(section, word, path):
                return found
    return None


def _known_keys(kind: type[BaseModel], location: _Location) -> list[str]:
    """Return the keys allowed at the parent of ``location``, sorted."""
    return sorted(key for model in _models_at(kind, location[:-1]) for key in _fields_by_key(model))


def _known_classes(kind: type[BaseModel], location: _Location) -> list[str]:
    """Return the classes allowed at ``location``, in the order of their declaration.

    A class that stands for others names them by ``class_names``.
    """
    return [
        name
        for model in _models_at(kind, location)
        for name in (model.class_names() if hasattr(model, "class_names") else (model.__name__,))
    ]


def _models_at(kind: type[BaseModel], location: _Location) -> list[type[BaseModel]]:
    """Return the configuration classes that the types allow at ``location``."""
    models = [kind]
    for part in location:
        if isinstance(part, int):
            continue
        named = [model for model in models if model.__name__ == part]
        fields = (_fields_by_key(model).get(part) for model in models)
        models = named or [
            found for field in fields if field for found in _models_in(field.annotation)
        ]
    return models


def _fields_by_key(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the model classes in an annotation such as ``X | None`` or ``tuple[X, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
