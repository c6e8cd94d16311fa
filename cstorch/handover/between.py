"""What a loop must leave as it is between the call of a model that it handed over and the update.

The step runs at the update, with the weights that it finds then, and MemoryX has its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from cstorch.remote.tensor import RemoteParameter
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.compiler.capture.live_weights import is_pending, pending_gradient
from waferstream.core.errors import ApplianceCompilationError


class Between:
    """The weights of a step where its model was called, and what stands for their gradients."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._parameters = list(model.parameters())
        self._marks = [_mark(each) for each in self._parameters]
        self._gradients: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    @property
    def holds_gradients(self) -> bool:
        """Whether the loop has kept a gradient since the last backward pass."""
        return any(is_pending(parameter.grad) for _, parameter, _ in self._gradients)

    def note_backward(self) -> None:
        """Let every parameter that is trained have a gradient that cannot be read."""
        self._gradients.clear()
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                parameter.grad = pending_gradient(parameter)
                self._gradients.append((name, parameter, parameter.grad))

    def check_call(self) -> None:
        """Refuse a call of the model with other parameters than its own.

        Raises:
            ApplianceCompilationError: It has other ones than in the first call of the step, or they
                are no parameters.
        """
        found = list(self._model.parameters())
        is_own = all(isinstance(each, nn.Parameter) for each in found)
        if not is_own or not _are_same(found, self._parameters):
            raise ApplianceCompilationError(
                "a step calls the model with other tensors in the place of its parameters",
                code="parameters-replaced-in-step",
                where=calling_line(),
                rule="the step runs when optimizer.step() is called, with the parameters that the "
                "model has then",
                remedy="call the model itself, and compute other weights from its own in forward "
                "(torch.nn.utils.parametrize)",
            )

    def check_update(self) -> None:
        """Refuse what the loop has changed since the model was called.

        Raises:
            ApplianceCompilationError: It has written to weights, or to gradients.
        """
        self.check_call()
        names = {each: name for name, each in self._model.named_parameters()}
        written = [
            names[each]
            for each, mark in zip(self._parameters, self._marks, strict=True)
            if isinstance(each, RemoteParameter) and each._remote.is_written_since(mark)
        ]
        if written:
            raise ApplianceCompilationError(
                "a weight is written to between the call of the model and the update",
                code="weight-written-in-step",
                where=calling_line(),
                value=", ".join(written),
                rule="the step runs when optimizer.step() is called, with the weights of then",
                remedy="write to weights after optimizer.step(), or before the model is called",
            )
        changed = [name for name, p, grad in self._gradients if p.grad is not grad]
        cleared = [name for name, p, _ in self._gradients if not is_pending(p.grad)]
        if changed or cleared:
            raise ApplianceCompilationError(
                "a gradient is replaced or cleared between the backward pass and the update",
                code="gradient-replaced",
                where=calling_line(),
                value=", ".join(changed or cleared),
                rule="MemoryX has the gradients and updates each weight by its own",
                remedy="change a gradient in a function that parameter.register_hook(...) calls; "
                "to leave a parameter as it is, set requires_grad_(False) before the model is "
                "called",
            )


def _mark(parameter: torch.Tensor) -> bytes | None:
    return parameter._remote.mark() if isinstance(parameter, RemoteParameter) else None


def _are_same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return whether two sequences have the same tensors, not equal ones."""
    return len(some) == len(others) and all(map(lambda a, b: a is b, some, others))
