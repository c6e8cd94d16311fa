"""The loss of next tokens: that of each, and their sum by the keys of a model section.

Shapes: B batch, T sequence.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, ValidationInfo
from pydantic import field_validator as check

from waferstream.core.config import Config


class LanguageLossConfig(Config):
    """Keys of the loss of a language model."""

    loss_scaling: Literal["num_tokens", "batch_size"] = "num_tokens"
    """Divisor of the summed loss of a batch: its labels that count, or its samples."""
    loss_weight: PositiveFloat = 1.0
    """Factor on the loss; for ``batch_size`` usually 1 / max_sequence_length."""

    @check("loss_weight")
    @classmethod
    def _weight_goes_with_batch_size(cls, loss_weight: float, info: ValidationInfo) -> float:
        if loss_weight != 1.0 and info.data.get("loss_scaling") == "num_tokens":
            raise ValueError("loss_weight requires loss_scaling batch_size")
        return loss_weight


def token_losses(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the fp32 loss of each label (B, T), in one row (B T,)."""
    return F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none")


def language_loss(
    config: LanguageLossConfig, losses: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Return the fp32 scalar loss of a batch.

    Args:
        config: What the sum is divided by.
        losses: Of each label, (B T,).
        attention_mask: 1 for labels that count, int64 (B, T).
    """
    weights = attention_mask.flatten().to(losses.dtype)
    summed = (losses * weights).sum()
    if config.loss_scaling == "batch_size":
        return summed * (config.loss_weight / attention_mask.shape[0])
    return summed / weights.sum().clamp(min=1)  # a fully masked micro-batch counts as 0
