"""A call of a step function: its tensors, which can be replaced, and all other arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.tracing.python_state import PythonState
from waferstream.core.errors import ApplianceCompilationError


@dataclass(frozen=True)
class Call:
    """A call of a step function, whose tensors can be replaced."""

    function: Callable[..., Any]
    leaves: list[Any]
    structure: pytree.TreeSpec
    state: PythonState | None = None
    """The state in Python in which each run of the function begins, if it is known."""

    @classmethod
    def of(cls, function: Callable[..., Any], args: Any, kwargs: Any) -> Call:
        """Flatten the arguments; ApplianceCompilationError if none of them holds a tensor."""
        call = cls(function, *pytree.tree_flatten((args, kwargs)))
        if not call.tensors:
            raise ApplianceCompilationError(
                "the traced step takes no tensor of the batch",
                code="step-without-tensor",
                rule="the tensors of the batch that it reads are its arguments",
                remedy="call it with the batch that the executor yields",
            )
        return call

    def check_like(self, other: Call) -> None:
        """Raise ApplianceCompilationError if Python might record another step from another call.

        Structure, shapes, dtypes and constants are compared. Other objects are not: what Python
        would make of them cannot be seen without running it.
        """
        if other.structure != self.structure:
            raise _changed(str(other.structure), str(self.structure))
        for new, old in zip(other.leaves, self.leaves, strict=True):
            if outline(new) != outline(old):
                raise _changed(outline(new), outline(old))

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in pytree order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def rewind(self) -> None:
        """Put back the state in Python, which an earlier run of the function may have changed."""
        if self.state is not None:
            self.state.rewind()

    def __call__(self, batch: Sequence[torch.Tensor]) -> Any:
        """Call the function with other tensors in the places of its own."""
        tensors = iter(batch)
        filled = [next(tensors) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(filled, self.structure)
        return self.function(*args, **kwargs)


def outline(argument: object) -> object:
    """Return the part of an argument that a recorded step depends on."""
    if isinstance(argument, torch.Tensor):
        return f"tensor {tuple(argument.shape)} of {argument.dtype}"
    return (type(argument), argument if is_constant(argument) else None)


def is_constant(value: object) -> bool:
    """Return whether a value is written out completely by ``repr``, and never changes."""
    kinds = bool | int | float | complex | str | bytes | torch.dtype | None
    return isinstance(value, kinds)


def _changed(value: object, recorded: object) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a traced step was called with other arguments than at first",
        code="step-arguments-changed",
        value=value,
        rule=f"the step is recorded once, from its first call: {recorded}",
        remedy="pass what changes as a tensor of the batch, or trace a function for each case",
    )
