"""Decoder-only transformers in ordinary PyTorch: GPT-2, GPT-3, GPT-J and LLaMA.

Configuration keys: cluster_interface.md, section 2.4.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check
from torch import nn

from modelzoo.models.layers import (
    check_length,
    fill_parameters,
    norm,
    position_embedding,
    transformer_layers,
)
from modelzoo.models.registry import register_model
from modelzoo.models.transformer_config import Feature, LanguageConfig, Residual

_RESIDUAL_OUTPUTS = ("attention.output.weight", "feed_forward.down.weight")


class GptConfig(LanguageConfig):
    """A decoder-only transformer."""

    is_causal: ClassVar[bool] = True

    name: str = "gpt2"

    # Head and loss
    use_bias_in_output: bool = False
    loss_scaling: Literal["num_tokens", "batch_size"] = "num_tokens"
    """Divisor of the summed loss of a batch: its labels that count, or its samples."""
    loss_weight: PositiveFloat = 1.0
    """Factor on the loss; for ``batch_size`` usually 1 / max_sequence_length."""
    compute_eval_metrics: bool = True
    """Accepted for compatibility: perplexity follows from the loss, which is always computed."""
    boundary_casting: Literal[False] = False

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        shape = (sequence_length or self.max_position_embeddings,)
        return (
            Feature("input_ids", shape, self.vocab_size),
            Feature("attention_mask", shape, 2),
            Feature("labels", shape, self.vocab_size),
        )

    @check("loss_weight")
    @classmethod
    def _weight_goes_with_batch_size(cls, loss_weight: float, info: ValidationInfo) -> float:
        if loss_weight != 1.0 and info.data.get("loss_scaling") == "num_tokens":
            raise ValueError("loss_weight requires loss_scaling batch_size")
        return loss_weight


class GptjConfig(GptConfig):
    """GPT-J and GPT-NeoX: parallel layers."""

    name: str = "gptj"
    position_embedding_type: Literal["learned", "rotary"] = "rotary"
    rotary_dim: PositiveInt | None = 64
    share_embedding_weights: bool = False
    use_projection_bias_in_attention: bool = False
    use_ffn_bias_in_attention: bool = False
    use_bias_in_output: bool = True
    dropout_rate: float = Field(default=0.1, ge=0, lt=1, alias="residual_dropout_rate")
    use_untied_layer_norm: bool = False
    """Separate norms for attention and feed-forward, as in GPT-NeoX; GPT-J shares one norm."""

    @property
    def residual(self) -> Residual:
        return "parallel"

    @property
    def shares_layer_norm(self) -> bool:
        return not self.use_untied_layer_norm


@register_model("gptj", config=GptjConfig)
@register_model("gpt2", "gpt3", "llama", config=GptConfig)
class GptModel(nn.Module):
    """Decoder-only transformer: tokens to loss.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters and, if the configuration shares them, ties the head's weights to the embedding's.
    """

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = position_embedding(config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout_rate)
        self.decoder = transformer_layers(config)
        self.norm = norm(config)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.use_bias_in_output)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the fp32 scalar loss.

        Args:
            input_ids: Tokens, int64 (B, T).
            attention_mask: 1 for labels that count, int64 (B, T).
            labels: Next tokens, int64 (B, T).

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
        """
        logits = self.logits(input_ids).float()
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        weights = attention_mask.flatten().to(losses.dtype)
        summed = (losses * weights).sum()
        if self.config.loss_scaling == "batch_size":
            return summed * (self.config.loss_weight / len(labels))
        return summed / weights.sum().clamp(min=1)  # a fully masked micro-batch counts as 0

    def logits(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return next-token scores (B, T, vocab_size)."""
        check_length(self.config, input_ids.shape[1])
        x, rotation = self.position(self.embedding(input_ids))
        x = self.embedding_dropout(x)
        for layer in self.decoder:
            x = layer(x, rotation)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores

    def initialize(self, seed: int) -> None:
        """Tie and initialize the parameters; each depends on (seed, its name) alone.

        Weights that write to the residual stream start smaller by 1 / sqrt(2 L), L layers adding
        two terms each (Radford et al. 2019, GPT-2, section 2.3).
        """
        if self.config.share_embedding_weights:
            self.head.weight = self.embedding.weight
        std = self.config.initializer_range
        residual_std = std / math.sqrt(2 * self.config.num_hidden_layers)
        fill_parameters(self, seed, std, dict.fromkeys(_RESIDUAL_OUTPUTS, residual_std))
