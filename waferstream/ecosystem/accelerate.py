"""A loop of ``accelerate`` on the cluster, by its accelerator.

    accelerator = Accelerator(num_csx=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    ...the loop, unchanged...
    accelerator.end_training()

Models of ``peft`` train in the same way: frozen weights stream, and have no optimizer state.
"""

from __future__ import annotations

from typing import Any

import accelerate
import torch
from torch import nn

from cstorch.handover import Handover, hand_over
from cstorch.trainer import CSConfig
from waferstream.core.errors import ConfigError


class Accelerator(accelerate.Accelerator):  # type: ignore[misc]  # checked without it
    """The accelerator whose device is a cluster.

    Args:
        options: Fields of ``cstorch.CSConfig``, such as ``num_csx`` and ``cluster``; all others
            are those of ``accelerate.Accelerator``.
    """

    def __init__(self, **options: Any) -> None:
        own = CSConfig.model_fields.keys()
        self._settings = {key: value for key, value in options.items() if key in own}
        self._handover: Handover | None = None
        super().__init__(cpu=True, **{k: v for k, v in options.items() if k not in own})
        if self.gradient_accumulation_steps > 1:
            raise ConfigError(
                "gradients must not be accumulated by the accelerator",
                code="trainer-accumulates",
                where="Accelerator.gradient_accumulation_steps",
                value=self.gradient_accumulation_steps,
                rule="the cluster cuts a batch of any size in micro-batches, and adds them up",
                remedy=f"a batch {self.gradient_accumulation_steps} times as large, and 1 here",
            )

    def prepare(self, *objects: Any, **options: Any) -> Any:
        """Prepare what a loop needs; hand over its model and its optimizer."""
        prepared = super().prepare(*objects, **options)
        models = [x for x in objects if isinstance(x, nn.Module)]
        optimizers = [x for x in objects if isinstance(x, torch.optim.Optimizer)]
        if models and optimizers:
            self._hand_over(models, optimizers)
        return prepared

    def end_training(self) -> None:
        """Let the model have its trained weights, and end the cluster."""
        if self._handover is not None:
            self._handover.end()
        super().end_training()

    def _hand_over(self, models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
        if self._handover is not None or len(models) > 1 or len(optimizers) > 1:
            raise ConfigError(
                "a loop must have one model and one optimizer",
                code="several-models",
                where="Accelerator.prepare",
                value=f"{len(models)} models, {len(optimizers)} optimizers",
                rule="a cluster holds the weights of one model",
                remedy="give one optimizer several parameter groups; prepare each pair once",
            )
        self._handover = hand_over(models[0], optimizers[0], **self._settings)
