"""Hints for the vendor's compiler on functions and tensors: accepted without effect.

A hint names a kernel, a region to recompute or the shape of a mask. The compiler of this project
decides all of that by itself, and no hint changes a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]


class AnnotationMode:
    """Base classes of a hint: its configuration and the attribute that it sets on ops."""

    @dataclass
    class Config:
        """Where the hint applies; subclasses add its arguments."""

        enable_fwd: bool
        enable_bwd: bool

    class Attribute(NamedTuple):
        """Name and value that the vendor's compiler would read from an op."""

        name: str
        value: Any
        is_backward: bool = False


def create_annotation(
    config_class: type[AnnotationMode.Config],
    get_attribute: Callable[..., AnnotationMode.Attribute],  # noqa: ARG001  (for the compiler)
    **arguments: Any,
) -> Decorator[Any]:
    """Return a decorator that leaves its function as it is, after checking the arguments."""
    config_class(**arguments)
    return _unchanged


def kernel_annotater(kernel: str | None = None) -> Decorator[Any]:  # noqa: ARG001
    """Return a decorator for functions that are to run on a kernel of that name."""
    return _unchanged


def groups_annotater(num_groups: int | None = None) -> Decorator[Any]:  # noqa: ARG001
    """Return a decorator for functions whose keys and values are shared by groups of heads."""
    return _unchanged


def _unchanged(function: Function) -> Function:
    return function
