"""Constants among the inputs of steps, which a step must not take for a part of its batch."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ApplianceCompilationError


class Constants:
    """The inputs of the step before, by which those are found that no step changes."""

    def __init__(self) -> None:
        self._before: list[tuple[weakref.ref[torch.Tensor], int]] = []

    def check(self, inputs: Sequence[torch.Tensor], beside: set[int]) -> None:
        """Raise ApplianceCompilationError for a constant that is as long as the batch.

        Args:
            inputs: The inputs of a step.
            beside: Those that no call of the model takes.
        """
        same = [any(ref() is x and n == _version(x) for ref, n in self._before) for x in inputs]
        if self._before and not all(same):  # else the loop has one batch alone
            for number in sorted(beside):
                if same[number] and _may_be_constant(inputs[number]):
                    raise _as_long_as_batch(inputs[number])
        self._before = [(weakref.ref(x), _version(x)) for x in inputs]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _may_be_constant(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may be weights of classes or features, and no targets."""
    return tensor.ndim == 1 and tensor.is_floating_point()


def _as_long_as_batch(tensor: torch.Tensor) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a tensor that no step changes is as long as the batch",
        code="constant-or-batch",
        where=calling_line(),
        value=f"shape {tuple(tensor.shape)}",
        rule="a tensor whose dimension 0 is the size of the batch has an entry for each sample",
        remedy="make it a buffer that the model's forward uses, or choose another batch size; "
        "pass tensor.clone() if it has an entry for each sample",
    )
