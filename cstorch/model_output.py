"""The loss in what a model returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def loss_in(output: Any) -> Any:
    """Return the loss in a model's output: an entry or attribute of that name, or its only scalar.

    Many models return (logits, loss), or (loss, logits). An output without any of them is returned
    as it is.
    """
    if isinstance(output, Mapping):
        return output.get("loss", output)
    found = getattr(output, "loss", output)
    if isinstance(found, tuple | list):
        scalars = [each for each in found if isinstance(each, torch.Tensor) and each.ndim == 0]
        return scalars[0] if len(scalars) == 1 else found
    return found
