"""What a class says of itself: the first line of its docstring, and its keys."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waferstream.core.config import Config


def field_rows(config: type[Config]) -> list[dict[str, Any]]:
    """Return name, type and default of the keys of a configuration."""
    return [
        {
            "key": field.alias or name,
            "type": _type_name(field.annotation),
            "default": "required" if field.is_required() else field.get_default(),
        }
        for name, field in config.model_fields.items()
    ]


def _type_name(annotation: Any) -> str:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.replace("typing.", "")


def first_line(subject: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(subject) or "").split("\n")[0]
