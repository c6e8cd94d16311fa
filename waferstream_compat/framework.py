"""The module ``cerebras.framework`` of articles: a model with a loss of its own, for a Trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from cstorch.trainer import CSConfig, Trainer
from waferstream.core.errors import ConfigError

__all__ = ["CSConfig", "CerebrasModel", "Trainer"]

log = logging.getLogger("waferstream")


class CerebrasModel(nn.Module):
    """A module that ``Trainer`` trains without ``loss_fn``: its loss follows from the targets.

    Args:
        module: The module to call, for a model that is no subclass.
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        super().__init__()
        if module is not None:
            self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module; a subclass has a forward of its own."""
        return self.module(*args, **kwargs)

    def default_loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy of class numbers, or the mean squared error of values.

        Raises:
            ConfigError: The target is neither, or the scores may lie in either of two dimensions.
        """
        if not target.is_floating_point():
            last = output.shape[:-1] == target.shape
            second = (output.shape[:1] + output.shape[2:]) == target.shape
            if last != second or output.ndim == 2:
                return _note(nn.functional.cross_entropy)(
                    output.movedim(-1, 1) if last else output, target.long()
                )
        elif output.shape == target.shape:
            return _note(nn.functional.mse_loss)(output, target)
        raise ConfigError(
            "the loss must follow from the targets, or be given",
            code="loss-unknown",
            where=type(self).__name__,
            value=f"output {tuple(output.shape)}, target {tuple(target.shape)} {target.dtype}",
            rule="class numbers, for scores in the last or in the second dimension, or values of"
            " the output's shape",
            remedy="pass loss_fn=..., a function of output and target, to Trainer",
        )


def _note(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a loss that nobody has named, after saying so."""
    log.warning("No loss_fn is given: the loss is torch.nn.functional.%s", loss.__name__)
    return loss
