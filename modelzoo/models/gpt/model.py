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
from modelzoo.models.blocks.key_patterns import KeyPattern
from modelzoo.models.blocks.language_loss import language_loss, token_losses
from modelzoo.models.blocks.layers import Routings, check_length, norm, position_embedding
from modelzoo.models.blocks.memory_tokens import MemoryEmbedding
from modelzoo.models.blocks.residual_layers import transformer_layers
from modelzoo.models.blocks.rotary import RotaryPosition, Rotation
from modelzoo.models.gpt.config import (
    DecoderConfig,
    GptConfig,
    GptjConfig,
)
from modelzoo.models.metrics import LanguageMetrics
from waferstream.core.errors import ConfigError
from waferstream.workload.models import ModelFamily

Reach = tuple[int | None, tuple[KeyPattern, ...]]
"""Window of a layer, and patterns of keys that its queries read besides."""

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
        self._memory = config.memory_tokens.places
        self.memory_embedding = _memory_embedding(config)
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
        routings: Routings | None = None,
    ) -> torch.Tensor:
        """Return next-token scores (B, T, vocab_size), and append the routing of every layer.

        Raises:
            ConfigError: T is more than ``max_position_embeddings``, or packed documents are given
                to a model with memory tokens.
        """
        if routings is None:
            routings = Routings(input_ids)
        x, rotations = self.embed(input_ids, position_ids)
        return self.decode(x, rotations, attention_span=attention_span, routings=routings)

    def embed(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Rotations]:
        """Return embedded tokens (B, T, C), and the rotations of attention.

        Memory tokens lie between them, so that they are more than T.

        Raises:
            ConfigError: T is more than ``max_position_embeddings``, or positions are given to a
                model with memory tokens.
        """
        check_length(self.config, input_ids.shape[1])
        if self._memory is not None:
            if position_ids is not None:
                raise _packed_with_memory()
            input_ids = self._memory.insert(input_ids, self.config.memory_tokens.memory_token_id)
        x = self.embedding(input_ids)
        if self.memory_embedding is not None:
            x = self.memory_embedding(x)
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
        routings: Routings | None = None,
    ) -> torch.Tensor:
        """Return next-token scores (B, T, vocab_size) of embedded tokens (B, T, C).

        Args:
            x: Embedded tokens.
            rotations: Of attention.
            attention_span: Later tokens of the same document, int64 (B, T).
            tokens: 0 at padding, which no token reads, int64 (B, T).
            routings: The routing of every layer is appended.
        """
        masks: dict[Reach, torch.Tensor | None] = {}
        for index, layer in enumerate(self.decoder):
            reach = self._reach(index)
            if reach not in masks:
                masks[reach] = self._mask(x, reach, attention_span, tokens)
            x = layer(x, rotations[reach[0] is not None], masks[reach], routings)
        if self._memory is not None:
            x = self._memory.remove(x)
        return self._scores(self.head(self.norm(x)))

    def balanced(
        self, loss: torch.Tensor, routings: Routings, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch, in training with that of unevenly chosen experts."""
        share = self.config.moe.load_balancing_loss_coef
        if not (routings.taken and share and self.training):
            return loss
        return loss + share * load_balancing_loss(routings.taken, attention_mask)

    def _reach(self, layer: int) -> Reach:
        """Return which keys a query of a layer reads."""
        return self.config.window_of(layer), self.config.patterns_of(layer)

    def _mask(
        self,
        x: torch.Tensor,
        reach: Reach,
        attention_span: torch.Tensor | None,
        tokens: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Return the term of attention scores; None for causal order and windows, which it has."""
        window, patterns = reach
        terms = (self.relative, attention_span, tokens)
        if not patterns and all(each is None for each in terms):
            return None
        before, first = distances(x.shape[1], x.device), self.config.attention_sink_tokens
        reads = readable_keys(before, window, first, attention_span, patterns)
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
        reaches = {self._reach(index) for index in range(len(self.decoder))}
        return self.decoder if len(reaches) == 1 else None

    def initialize(self, seed: int, prefix: str = "") -> None:
        """Tie and initialize the parameters; each depends on (seed, its name) alone.

        Names begin with ``prefix``, of a decoder that is part of a model.
        """
        if self.config.share_embedding_weights:
            self.head.weight = self.embedding.weight
        fill_parameters(self, seed, *self.config.initializers(), prefix=prefix)
        if isinstance(self.relative, AlibiBias):
            self.relative.initialize()


def _memory_embedding(config: DecoderConfig) -> MemoryEmbedding | None:
    """Return the trained vector of memory tokens, if they have one."""
    memory = config.memory_tokens
    if memory.places is None or not memory.add_extra_embedding:
        return None
    return MemoryEmbedding(memory.places, config.hidden_size)


def _packed_with_memory() -> ConfigError:
    return ConfigError(
        "a model with memory tokens must have one document in a sequence",
        code="packed-with-memory",
        where="trainer.init.model.memory_tokens",
        value="positions of packed documents, or of a single token",
        remedy="set use_vsl to false, or drop memory_tokens",
    )


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
        routings = Routings(input_ids)
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
