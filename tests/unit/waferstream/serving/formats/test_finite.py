"""Schemas that refer to themselves: some end, others do not."""

from __future__ import annotations

from typing import Any

import pytest

from waferstream.serving.formats.finite import is_finite

REF = {"$ref": "#"}
TREE = {"type": "object", "properties": {"a": REF}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, True),
        (TREE, False),
        (TREE | {"required": []}, True),
        ({"type": "object", "properties": {"a": {"anyOf": [REF, {"type": "null"}]}}, "required": ["a"]}, True),
        ({"type": "object", "properties": {"a": {"type": "array", "items": REF}}, "required": ["a"]}, True),
        ({"type": "object", "properties": {"a": {"type": "array", "items": REF, "minItems": 1}}, "required": ["a"]}, False),
        ({"anyOf": [REF, REF]}, False),
        ({"allOf": [{"type": "string"}, REF]}, False),
        ({"type": "object", "required": ["b"]}, True),
        ({"type": "array", "minItems": 2}, True),
        ({"allOf": 3, "anyOf": {"a": 1}, "required": [[]], "type": "object", "properties": {}}, True),
        ({"$ref": "#/enum", "enum": [1]}, True),
    ],
)  # fmt: skip
def test_schema_that_ends_is_finite(schema: dict[str, Any], expected: bool) -> None:
    assert is_finite(schema, {"#"}) == expected


@pytest.mark.parametrize("is_closed", [True, False])
def test_end_is_found_over_many_references(is_closed: bool) -> None:
    last: dict[str, Any] = {"type": "null"} if is_closed else {"$ref": "#/$defs/a~10"}
    defs = {f"a/{number}": {"$ref": f"#/$defs/a~1{number + 1}"} for number in range(200)}
    schema = {"$ref": "#/$defs/a~10", "$defs": {**defs, "a/200": last}}
    references = {f"#/$defs/a~1{number}" for number in range(201)}
    assert is_finite(schema, references) == is_closed
