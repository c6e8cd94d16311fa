"""A decoder-only transformer as GPT-2, GPT-3 and LLaMA are, in ordinary PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.gpt_config import GptConfig
from modelzoo.models.layers import DecoderLayer, LearnedPosition, RotaryPosition, norm
from wsc.core.errors import ConfigError
from wsc.core.rng import stream_key

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
        is_rotary = config.position_embedding_type == "rotary"
        self.position = RotaryPosition(config) if is_rotary else LearnedPosition(config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout_rate)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
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
        self._check_length(input_ids.shape[1])
        x = self.embedding(input_ids)
        rotation = None
        if isinstance(self.position, LearnedPosition):
            x = self.position(x)
        else:
            rotation = self.position(x)
        x = self.embedding_dropout(x)
        for layer in self.decoder:
            x = layer(x, rotation)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores

    def _check_length(self, length: int) -> None:
        if length > self.config.max_position_embeddings:
            raise ConfigError(
                "the sequence is longer than the model's positions",
                value=f"{length}, max_position_embeddings {self.config.max_position_embeddings}",
                remedy="raise max_position_embeddings or lower max_sequence_length",
            )

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Tie and fill the parameters; each depends on (seed, its name) alone.

        Weights are normal with standard deviation ``initializer_range``; those that write to the
        residual stream are scaled by 1 / sqrt(2 L), L layers adding two terms each (Radford et
        al. 2019, GPT-2, section 2.3). Biases are 0, norm weights 1.
        """
        if self.config.share_embedding_weights:
            self.head.weight = self.embedding.weight
        std = self.config.initializer_range
        residual_std = std / math.sqrt(2 * self.config.num_hidden_layers)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif name.endswith("norm.weight"):
                parameter.fill_(1)
            else:
                generator = torch.Generator().manual_seed(stream_key(seed, "init", name))
                is_residual = name.endswith(_RESIDUAL_OUTPUTS)
                parameter.normal_(0, residual_std if is_residual else std, generator=generator)
