"""What a loop does in one step, written down so that it can be run again on other tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.handover.deferred import Deferred
from cstorch.tracing.call import is_constant


@dataclass(frozen=True)
class Input:
    """A tensor of the batch, by its number among the inputs of the step."""

    number: int


@dataclass(frozen=True)
class Result:
    """A tensor among the results of a call, by its number among all results of the step."""

    number: int


class Same:
    """An object that is equal to itself alone."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


class Written(Same):
    """A tensor of the loop that a call writes to, such as a sum of losses.

    Until then it is deferred itself, so that no other name of it has an old value.
    """


class Fixed:
    """A small tensor that is no part of the batch: equal to one with the same values."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value.detach().clone()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Fixed)
            and self.value.dtype == other.value.dtype
            and torch.equal(self.value, other.value)
        )

    __hash__ = None  # type: ignore[assignment]


def noted(leaf: object) -> object:
    """Return an argument that is no tensor in the form in which calls are compared."""
    return (type(leaf), leaf) if is_constant(leaf) else Same(leaf)


@dataclass(frozen=True)
class NotedCall:
    """A call of a function: the leaves of its arguments, and where they are."""

    function: Callable[..., Any]
    leaves: tuple[object, ...]
    structure: pytree.TreeSpec
    autocast: torch.dtype | None
    results: frozenset[int]
    """The numbers of the tensors among what it returns."""

    @property
    def reads(self) -> set[int]:
        """The results that it takes."""
        return {leaf.number for leaf in self.leaves if isinstance(leaf, Result)}

    @property
    def writes_result(self) -> bool:
        """Whether it changes a result where it is."""
        return writes(self.function) and isinstance(self.leaves[0], Result)

    def reading(self, others: Mapping[int, int]) -> NotedCall:
        """Return the call with other results in the place of those that it takes."""
        leaves = [
            Result(others.get(x.number, x.number)) if isinstance(x, Result) else x
            for x in self.leaves
        ]
        return replace(self, leaves=tuple(leaves))

    @property
    def is_of_batch(self) -> bool:
        """Whether it takes no tensor besides those of the step."""
        return not any(isinstance(leaf, Fixed | Written) for leaf in self.leaves)

    def run(
        self, inputs: Sequence[torch.Tensor], results: Mapping[int, torch.Tensor]
    ) -> list[torch.Tensor]:
        """Call the function; return the tensors among what it returns."""
        leaves = [_filled(leaf, inputs, results) for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        with casting(self.autocast):
            returned = self.function(*args, **kwargs)
        tensors = [x for x in pytree.tree_leaves(returned) if isinstance(x, torch.Tensor)]
        assert len(tensors) == len(self.results), "the same call has the same results"
        return tensors


def copy_of(number: int, copy: int) -> NotedCall:
    """Return a call that copies a result."""
    structure = pytree.tree_flatten(((None,), {}))[1]
    return NotedCall(torch.clone, (Result(number),), structure, None, frozenset({copy}))


def writes(function: Callable[..., Any]) -> bool:
    """Return whether a torch function writes to its first argument."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _filled(
    leaf: object, inputs: Sequence[torch.Tensor], results: Mapping[int, torch.Tensor]
) -> object:
    match leaf:
        case Input(number):
            return inputs[number]
        case Result(number):
            return results[number]
        case Written(value=Deferred() as value):
            value.release()
            return value
        case Same(value=value) | Fixed(value=value):
            return value
        case (_, value):
            return value
    raise AssertionError("a leaf is noted in one of these forms")


def current_autocast() -> torch.dtype | None:
    """Return the type of ``torch.autocast`` on the CPU, None where it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


@contextmanager
def casting(dtype: torch.dtype | None) -> Iterator[None]:
    """Compute under ``torch.autocast``, where a loop does."""
    with nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype):
        yield


@dataclass(frozen=True)
class Clip:
    """A call of one of torch's clipping functions."""

    kind: str
    limit: float
    norm: int = -1
    """The number of the norm before it among the results of the step, if it returns one."""


@dataclass
class Step:
    """The calls of one step up to the update; two are equal where their loops did the same."""

    calls: list[NotedCall]
    losses: list[int]
    """The results from which a backward pass begins."""

    clips: list[Clip]
    kept: tuple[int, ...]
    """The results that the loop still holds, whose values come back."""

    shapes: tuple[object, ...]
    """Shapes and types of the inputs."""
