"""Decoder-only transformers in ordinary PyTorch: GPT-2, GPT-3, GPT-J, LLaMA and their relatives.

Shapes: B batch, T sequence, C hidden.
"""

from __future__ import annotations

import torch
from torch import nn

from modelzoo.models.blocks.attention import Attention
from modelzoo.models.blocks.attention_mask import (
    AlibiBias,
    RelativeBias,
    as_term,
    distances,
    padding_mask,
    readable_keys,
)
from modelzoo.models.blocks.experts import load_balancing_loss
from modelzoo.models.blocks.initializers import fill_parameters
from modelzoo.models.blocks.language_loss import language_loss, token_losses
from modelzoo.models.blocks.layers import Routing, check_length, norm, position_embedding
from modelzoo.models.blocks.residual_layers import transformer_layers
from modelzoo.models.blocks.rotary import RotaryPosition, Rotation
from modelzoo.models.gpt.config import (
    DecoderConfig,
    GptConfig,
    GptjConfig,
)
from modelzoo.models.metrics import LanguageMetrics
from waferstream.workload.models import ModelFamily

Rotations = tuple[Rotation | None, Rotation | None]
"""Of layers that read all keys, and of those with a window."""


class Decoder(nn.Module):
    """Decoder-only transformer: tokens to scores of the next ones.

    Activations have the dtype of the parameters. ``initialize`` fills the parameters and, if the
    configuration shares them, ties the head's weights to the embedding's.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_norm = norm(config) if config.embedding_layer_norm else None
        self.position = position_embedding(config)
        self.window_position = _window_position(config)
        self.relative = _distance_bias(config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout_rate)
        self.decoder = transformer_layers(config)
        attentions = (each for each in self.decoder.modules() if isinstance(each, Attention))
        for index, attention in enumerate(attentions):
            attention.window = config.window_of(index)
            attention.first_tokens = config.attention_sink_tokens
            if config.scale_qk_dot_by_layer_idx:
                attention.scale /= index + 1
        self.norm = norm(config)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.use_bias_in_output)

    def logits(
        self,
        input_ids: torch.Tensor,
        attention_span: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        routings: list[Routing] | None = None,
    ) -> torch.Tensor:
        """Return next-token scores (B, T, vocab_size), and append the routing of every layer."""
        x, rotations = self.embed(input_ids, position_ids)
        return self.decode(x, rotations, attention_span=attention_span, routings=routings)

    def embed(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Rotations]:
        """Return embedded tokens (B, T, C), and the rotations of attention.

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
        """
        check_length(self.config, input_ids.shape[1])
        x = self.embedding(input_ids)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x, rotation = self.position(x, position_ids)
        if self.config.embeddings_scale != 1.0:
            x = x * self.config.embeddings_scale
        near = rotation
        if self.window_position is not None:
            _, near = self.window_position(x, position_ids)
        return self.embedding_dropout(x), (rotation, near)

    def decode(
        self,
        x: torch.Tensor,
        rotations: Rotations,
        *,
        attention_span: torch.Tensor | None = None,
        tokens: torch.Tensor | None = None,
        routings: list[Routing] | None = None,
    ) -> torch.Tensor:
        """Return next-token scores (B, T, vocab_size) of embedded tokens (B, T, C).

        Args:
            x: Embedded tokens.
            rotations: Of attention.
            attention_span: Later tokens of the same document, int64 (B, T).
            tokens: 0 at padding, which no token reads, int64 (B, T).
            routings: The routing of every layer is appended.
        """
        masks: dict[int | None, torch.Tensor | None] = {}
        for index, layer in enumerate(self.decoder):
            window = self.config.window_of(index)
            if window not in masks:
                masks[window] = self._mask(x, window, attention_span, tokens)
            x = layer(x, rotations[window is not None], masks[window], routings)
        return self._scores(self.head(self.norm(x)))

    def balanced(
        self, loss: torch.Tensor, routings: list[Routing], attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch, in training with that of unevenly chosen experts."""
        share = self.config.moe.load_balancing_loss_coef
        if not (routings and share and self.training):
            return loss
        return loss + share * load_balancing_loss(routings, attention_mask)

    def _mask(
        self,
        x: torch.Tensor,
        window: int | None,
        attention_span: torch.Tensor | None,
        tokens: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Return the term of attention scores; None for causal order and windows, which it has."""
        if self.relative is None and attention_span is None and tokens is None:
            return None
        before = distances(x.shape[1], x.device)
        reads = readable_keys(before, window, self.config.attention_sink_tokens, attention_span)
        term = as_term(reads, None if self.relative is None else self.relative(before), x)
        return term if tokens is None else term + padding_mask(tokens, x.dtype)

    def _scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Return scores of the head scaled and capped."""
        scale, cap = self.config.logits_scale, self.config.final_logit_softcapping
        if scale is not None:
            scores = scores * scale
        return scores if cap is None else cap * torch.tanh(scores / cap)

    @property
    def repeated_layers(self) -> nn.ModuleList | None:
        """The layers, if the forward pass runs all of them in the same way."""
        windows = {self.config.window_of(index) for index in range(len(self.decoder))}
        return self.decoder if len(windows) == 1 else None

    def initialize(self, seed: int, prefix: str = "") -> None:
        """Tie and initialize the parameters; each depends on (seed, its name) alone.

        Names begin with ``prefix``, of a decoder that is part of a model.
        """
        if self.config.share_embedding_weights:
            self.head.weight = self.embedding.weight
        fill_parameters(self, seed, *self.config.initializers(), prefix=prefix)
        if isinstance(self.relative, AlibiBias):
            self.relative.initialize()


def _window_position(config: DecoderConfig) -> RotaryPosition | None:
    """Return the rotation of layers with a window, if it is another one."""
    theta = config.window_rope_theta
    return None if theta is None else RotaryPosition(config.rotated_dim, theta)


def _distance_bias(config: DecoderConfig) -> AlibiBias | RelativeBias | None:
    """Return the bias of attention by distance that the configuration selects."""
    if config.position_embedding_type == "alibi":
        trained = config.alibi_trainable_slopes
        return AlibiBias(config.num_heads, config.pos_scaling_factor, trained)
    if config.position_embedding_type == "relative":
        return RelativeBias(config.num_relative_attention_buckets, config.num_heads)
    return None


class GptModel(Decoder):
    """Decoder-only transformer: tokens to loss, which is fp32."""

    config: GptConfig

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.metrics: LanguageMetrics | None = None

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        attention_span: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss.

        Args:
            input_ids: Tokens, int64 (B, T).
            attention_mask: 1 for labels that count, int64 (B, T).
            labels: Next tokens, int64 (B, T).
            attention_span: Later tokens of the same document, int64 (B, T); for packed documents.
            position_ids: Positions within the documents, int64 (B, T).

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
        """
        routings: list[Routing] = []
        scores = self.logits(input_ids, attention_span, position_ids, routings)
        losses = token_losses(scores, labels)
        if self.metrics is not None and not self.training:
            self.metrics(labels, scores, attention_mask, losses)
        loss = language_loss(self.config, losses, attention_mask)
        return self.balanced(loss, routings, attention_mask)

    def initialize(self, seed: int, prefix: str = "") -> None:
        """Tie and initialize the parameters; each depends on (seed, its name) alone."""
        super().initialize(seed, prefix)
        if self.config.compute_eval_metrics:
            self.metrics = LanguageMetrics()


GPT = ModelFamily(GptModel, GptConfig)
GPTJ = ModelFamily(GptModel, GptjConfig)
