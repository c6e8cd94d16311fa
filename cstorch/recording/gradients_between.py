"""Gradients that a traced step leaves on its parameters, until the next call clears them.

A plain loop that clears no gradients adds those of each step to those before. MemoryX keeps none
between steps, so such a loop is refused. A parameter holds a ``PendingGradient`` between two calls
where the step itself does not clear it: then ``zero_grad`` in the loop is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import nn

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.capture.live_weights import (
    PendingGradient,
    is_pending,
    pending_gradient,
)
from waferstream.core.errors import ApplianceCompilationError


class GradientsBetween:
    """The gradients on the parameters of a model between two calls of traced steps."""

    def __init__(self) -> None:
        self._pending: set[str] = set()

    def note_call(
        self,
        function: Callable[..., Any],
        model: nn.Module,
        step: Captured,
        updated: Collection[str],
    ) -> None:
        """Check what is left from the calls before, and note what a step leaves.

        Args:
            function: The function of the step.
            model: The model.
            step: The step.
            updated: The parameters that it updates.

        Raises:
            ApplianceCompilationError: The step adds to gradients of a step before.
        """
        leaves = step.carried & step.left
        if not leaves and not self._pending:
            return
        parameters = dict(model.named_parameters())
        for name in sorted(step.carried & set(updated)):
            if is_pending(parameters[name].grad):
                raise _refusal(function, name)
        for name in self._pending - leaves:
            if isinstance(parameters[name].grad, PendingGradient):
                parameters[name].grad = None
        for name in leaves:
            parameters[name].grad = pending_gradient(parameters[name])
        self._pending = set(leaves)

    def end(self, model: nn.Module) -> None:
        """Clear what is left on the parameters of a model, on which plain PyTorch may go on."""
        self._pending.clear()
        for parameter in model.parameters():
            if isinstance(parameter.grad, PendingGradient):
                parameter.grad = None


def _refusal(function: Callable[..., Any], name: str) -> ApplianceCompilationError:
    code = function.__code__
    return ApplianceCompilationError(
        "a traced step adds to the gradients of the step before",
        code="gradients-not-cleared",
        where=f"{code.co_filename}:{code.co_firstlineno}: {function.__name__}",
        value=name,
        rule="MemoryX keeps no gradients between steps",
        remedy="call optimizer.zero_grad() in every step; to add up gradients of several batches, "
        "let the loader yield them as one",
    )
