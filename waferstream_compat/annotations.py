"""Hints for the vendor's compiler on functions and tensors, none of which changes a value.

Regions to recompute and their checkpoints are recomputed and kept, in addition to what the compiler
of this project chooses. Other hints name a kernel or the shape of a mask, and have no effect.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from waferstream.compiler.capture.node_marks import marked_for_recompute

MARKS = ("recompute_region", "recompute_ckpt")
_calls = itertools.count()

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
    get_attribute: Callable[..., AnnotationMode.Attribute],
    **arguments: Any,
) -> Decorator[Any]:
    """Return a decorator whose function is traced with the attribute of its forward ops.

    Args:
        config_class: The class of the arguments.
        get_attribute: Returns the attribute for a configuration and a direction.
        arguments: Those of the class.
    """
    config = config_class(**arguments)
    attribute = get_attribute(config, False)
    name = getattr(attribute, "name", None)
    return _marking(name) if config.enable_fwd and name in MARKS else _unchanged


def _marking(mark: str) -> Decorator[Any]:
    """Return a decorator that marks the forward ops of each call."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with marked_for_recompute(mark, next(_calls)):
                return function(*args, **kwargs)

        return call

    return decorate


def kernel_annotater(kernel: str | None = None) -> Decorator[Any]:  # noqa: ARG001
    """Return a decorator for functions that are to run on a kernel of that name."""
    return _unchanged


def groups_annotater(num_groups: int | None = None) -> Decorator[Any]:  # noqa: ARG001
    """Return a decorator for functions whose keys and values are shared by groups of heads."""
    return _unchanged


def _unchanged(function: Function) -> Function:
    return function
