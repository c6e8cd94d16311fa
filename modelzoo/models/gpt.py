"""A decoder-only transformer as GPT-2, GPT-3, GPT-J and LLaMA are, in ordinary PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.gpt_config import GptConfig
from modelzoo.models.initialization import fill_parameters
from modelzoo.models.layers import check_length, norm, position_embedding, transformer_layers

_RESIDUAL_OUTPUTS = ("attention.output.weight", "feed_forward.down.weight")


class GptModel(nn.Module):
    """Tokens in, loss out.

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
        """The fp32 scalar loss of int64 (B, T) tokens; ``attention_mask`` says which labels count.

        Raises ConfigError if T is more than ``max_position_embeddings``.
        """
        logits = self.logits(input_ids).float()
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        weights = attention_mask.flatten().to(losses.dtype)
        summed = (losses * weights).sum()
        if self.config.loss_scaling == "batch_size":
            return summed * (self.config.loss_weight / len(labels))
        return summed / weights.sum().clamp(min=1)  # a fully masked micro-batch counts as 0

    def logits(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Next-token scores (B, T, vocab_size)."""
        check_length(self.config, input_ids.shape[1])
        x, rotation = self.position(self.embedding(input_ids))
        x = self.embedding_dropout(x)
        for layer in self.decoder:
            x = layer(x, rotation)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores

    def initialize(self, seed: int) -> None:
        """Tie and fill the parameters; each depends on (seed, its name) alone.

        Weights that write to the residual stream start smaller by 1 / sqrt(2 L), L layers adding
        two terms each (Radford et al. 2019, GPT-2, section 2.3).
        """
        if self.config.share_embedding_weights:
            self.head.weight = self.embedding.weight
        std = self.config.initializer_range
        residual_std = std / math.sqrt(2 * self.config.num_hidden_layers)
        fill_parameters(self, seed, std, dict.fromkeys(_RESIDUAL_OUTPUTS, residual_std))
