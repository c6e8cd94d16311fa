"""Run the ops of a step that keep its loss within limits, on the loss of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from wsc.core.errors import DataError
from wsc.core.program.program import Mode, Program
from wsc.core.roles.installation import Installation
from wsc.core.roles.role import Value


class LossGuards:
    """The kernels of installed programs that guard losses."""

    def __init__(self) -> None:
        self._kernels: dict[Mode, list[Callable[..., tuple[Any, ...]]]] = {}

    def install(self, installation: Installation) -> None:
        """Build the kernels of a program."""
        self._kernels[installation.mode] = [kernel.build() for kernel in installation.guards]

    def check(self, program: Program, losses: Sequence[Value], step: int) -> None:
        """Raise DataError for a loss of the batch that a guard would have changed.

        Args:
            program: The program of the step.
            losses: What the guards take, in their order.
            step: The step, for errors.
        """
        kernels = self._kernels[program.mode]
        for guard, kernel, loss in zip(program.guards, kernels, losses, strict=True):
            (kept,) = kernel(torch.tensor(loss))
            if not torch.equal(kept, torch.tensor(loss)):
                raise DataError(
                    "an op that keeps the loss within limits would have changed it",
                    code="loss-out-of-limits",
                    where=f"step {step}: {guard}",
                    value=f"{loss}, which becomes {float(kept)}",
                    rule="it acts on the loss of the batch, which is known after the backward pass "
                    "of its micro-batches",
                    remedy="keep the losses of samples within limits, before they are added; or "
                    "set csx.performance.micro_batch_size to the batch size",
                )
