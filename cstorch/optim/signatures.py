"""Constructors with named and typed arguments, for programs that read them.

The classes of optimizers and schedulers are made from tables. Tools that build configurations from
a class (as the vendor's Model Zoo does) ask ``inspect.signature(cls.__init__)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from types import NoneType, UnionType
from typing import Annotated, Any, List, Optional, Tuple, Union, get_args, get_origin  # noqa: UP035

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from waferstream.core.hyper_schedules.base import HyperSchedule

Initializer = Callable[..., None]


def with_signature(initializer: Initializer, parameters: Iterable[Parameter]) -> Initializer:
    """Return a constructor that calls ``initializer`` and has the stated parameters."""

    @functools.wraps(initializer)
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807
        initializer(self, *args, **named)

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = Signature([own, *parameters])  # type: ignore[attr-defined]
    __init__.__annotations__ = {}
    return __init__


def parameters_of(
    model: type[BaseModel], names: dict[str, str], part: type[Any] | None = None
) -> list[Parameter]:
    """Return a parameter for each field of a model.

    Args:
        model: The fields, with their types and defaults.
        names: The name of the parameter for each field; fields without one are left out.
        part: The type of a parameter that stands for a schedule.
    """
    return [
        Parameter(
            names[name],
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if field.is_required() else _default(field),
            annotation=plain_type(field.annotation, part),
        )
        for name, field in model.model_fields.items()
        if name in names
    ]


def plain_type(annotation: Any, part: type[Any] | None = None) -> Any:
    """Return a type without its ranges; ``part`` replaces schedules, lists replace open tuples."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain_type(args[0], part)
    if isinstance(annotation, type) and issubclass(annotation, HyperSchedule):
        return part
    if origin in (Union, UnionType):
        inner = [plain_type(arg, part) for arg in args if arg is not NoneType]
        union = inner[0] if len(inner) == 1 else Union[tuple(inner)]  # noqa: UP007
        return Optional[union] if NoneType in args else union  # noqa: UP045
    if origin is tuple and args[-1] is Ellipsis:
        return List[plain_type(args[0], part)]  # type: ignore[misc]  # noqa: UP006
    if origin is tuple:
        return Tuple[tuple(plain_type(arg, part) for arg in args)]  # noqa: UP006
    return annotation


def _default(field: FieldInfo) -> Any:
    default = field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) and not default else default
