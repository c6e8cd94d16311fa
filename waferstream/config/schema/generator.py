"""JSON schemas of typed configuration: what a file may contain, with meaning, unit and source.

pydantic knows the types. Added here: what validators accept besides (a single entry for a list,
``{Class: {arguments}}``), docstrings of fields as descriptions, units from the ends of their names,
and sources of the numbers of the emulated machine.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from waferstream.config.sections.section import Named, one_or_many

UNITS: Mapping[str, str] = {
    "_bytes_per_s": "bytes/s",
    "_flops_per_s": "FLOP/s",
    "_bytes": "bytes",
    "_bytes_per_pe": "bytes",
    "_hz": "Hz",
    "_ps": "ps",
    "_timeout_s": "s",
    "_sec": "s",
    "_cycles": "cycles",
    "_cycle": "1/cycle",
    "_gi": "GiB",
    "_steps": "steps",
    "steps": "steps",
    "batch_size": "samples",
}
"""Unit of a key by the end of its name, the first that fits."""


class ConfigSchema(GenerateJsonSchema):
    """Generator of the schema of a configuration class, for files that are read by it."""

    def get_title_from_name(self, name: str) -> str:
        """Return the title of a key: the key, as it is written in the file."""
        return name

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> Any:
        """Return the values that a validator accepts besides those of its type."""
        function = schema["function"]["function"]
        if function is one_or_many.func:
            return _one_or_many(self.generate_inner(schema["schema"]))
        return super().function_before_schema(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a section, of its class with arguments where it is ``Named``."""
        found = super().model_schema(schema)
        kind: type[BaseModel] = schema["cls"]
        _describe(found, kind)
        return _with_class_name(found, kind) if issubclass(kind, Named) else found


def unit_of(name: str) -> str | None:
    """Return the unit of a key by the end of its name; None where it has none."""
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), None)


def _one_or_many(listed: JsonSchemaValue) -> JsonSchemaValue:
    """Accept an entry of a list for a list of one, and null for an empty list."""
    return {"anyOf": [listed, listed.get("items", {}), {"type": "null"}]}


def _with_class_name(arguments: JsonSchemaValue, kind: type[BaseModel]) -> JsonSchemaValue:
    """Return the schema of ``{Class: {arguments}}``; null stands for no arguments."""
    body = {key: value for key, value in arguments.items() if key != "description"}
    needs_some = bool(arguments.get("required"))
    return {
        "title": kind.__name__,
        "description": arguments.get("description", ""),
        "type": "object",
        "properties": {kind.__name__: body if needs_some else {"anyOf": [body, {"type": "null"}]}},
        "required": [kind.__name__],
        "additionalProperties": False,
    }


def _describe(found: JsonSchemaValue, kind: type[BaseModel]) -> None:
    """Give the keys of a section their descriptions, units, and sources."""
    documented = field_docstrings(kind)
    for name, field in kind.model_fields.items():
        key = field.validation_alias if isinstance(field.validation_alias, str) else name
        entry = found["properties"].get(key)
        if entry is None:
            continue
        if "status" in entry:  # of a number of the machine: its description is its source
            entry["x-status"] = entry.pop("status")
            entry["x-source"] = entry.pop("description", "")
        if name in documented:
            entry["description"] = documented[name]
        if (unit := unit_of(name)) is not None:
            entry["x-unit"] = unit
        if isinstance(field.get_default(call_default_factory=False), BaseModel):
            entry.pop("default", None)  # a section states the defaults of its keys itself


def field_docstrings(kind: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a class and of its bases, by field."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, BaseModel) and not base.__module__.startswith("pydantic"):
            found |= _own_docstrings(base)
    return found


@cache
def _own_docstrings(kind: type[BaseModel]) -> Mapping[str, str]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:  # a class that a function has made has no source
        return {}
    found = {}
    for field, below in pairwise(getattr(tree, "body", ())):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(inspect.cleandoc(text).split())
    return found
