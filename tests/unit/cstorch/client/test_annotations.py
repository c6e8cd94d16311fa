"""Hints for the vendor's compiler."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cstorch.client.annotations import (
    AnnotationMode,
    create_annotation,
    groups_annotater,
    kernel_annotater,
)


@dataclass
class Named(AnnotationMode.Config):
    name: str


def attribute(config: Named, is_backward: bool) -> AnnotationMode.Attribute:
    return AnnotationMode.Attribute("named", f"{config.name}.{is_backward}")


def double(x: int) -> int:
    return 2 * x


def test_hints_leave_a_function_as_it_is() -> None:
    hint = create_annotation(Named, attribute, name="a", enable_fwd=True, enable_bwd=False)
    assert hint(double) is double
    assert groups_annotater(None)(kernel_annotater("FAST")(double)) is double


def test_arguments_of_a_hint_are_checked() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        create_annotation(Named, attribute, enable_fwd=True, enable_bwd=True, nonsense=1)
