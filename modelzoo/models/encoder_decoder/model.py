"""Encoder-decoder transformers: T5 (Raffel et al. 2020) and Vaswani et al. 2017.

Shapes: B batch, S source, T target, C hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.blocks.attention import attention
from modelzoo.models.blocks.attention_mask import (
    RelativeBias,
    as_term,
    distances,
    padding_mask,
    readable_keys,
)
from modelzoo.models.blocks.initializers import (
    NormalInitializer,
    TruncatedNormalInitializer,
    WeightInitializer,
    XavierInitializer,
    fill_parameters,
)
from modelzoo.models.blocks.layers import FeedForward, FixedPosition, NoPosition, norm
from modelzoo.models.blocks.residual_layers import transformer_layers
from modelzoo.models.encoder_decoder.config import EncoderDecoderConfig, StackConfig
from modelzoo.models.metrics import LanguageMetrics
from waferstream.core.errors import ConfigError
from waferstream.workload.models import ModelFamily

Initializers = dict[str, WeightInitializer]
"""By the end of a parameter's name; the first that fits."""


class EncoderDecoderModel(nn.Module):
    """Encoder-decoder transformer: tokens of a source and a target to loss.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters and, if the configuration shares them, ties the head's weights to the embedding's.
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        source, target = config.vocab_sizes
        hidden, is_fixed = config.d_model, config.position_embedding_type == "fixed"
        self.embedding = nn.Embedding(source, hidden)
        is_shared = config.share_encoder_decoder_embedding
        self.decoder_embedding = None if is_shared else nn.Embedding(target, hidden)
        self.position = FixedPosition() if is_fixed else NoPosition()
        self.dropout = nn.Dropout(config.dropout_rate)
        self.encoder_bias = None if is_fixed else _bias(config, reads_later=True)
        self.encoder = transformer_layers(config.encoder)
        self.encoder_norm = norm(config.encoder)
        self.decoder_bias = None if is_fixed else _bias(config, reads_later=False)
        self.decoder = nn.ModuleList(
            DecoderLayer(config.decoder) for _ in range(config.decoder.num_hidden_layers)
        )
        self.decoder_norm = norm(config.decoder)
        self.head = nn.Linear(hidden, target, bias=False)
        self.metrics: LanguageMetrics | None = None

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        decoder_attention_mask: torch.Tensor,
        labels: torch.Tensor,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            input_ids: Tokens of the source, int64 (B, S).
            attention_mask: 0 at padding of the source, (B, S).
            decoder_input_ids: Tokens of the target, each before its label, int64 (B, T).
            decoder_attention_mask: 1 for labels that count, (B, T).
            labels: int64 (B, T).

        Raises:
            ConfigError: S or T is more than the configuration states.
        """
        memory_mask = padding_mask(attention_mask, self.head.weight.dtype)
        scores = self.decode(decoder_input_ids, self.encode(input_ids, memory_mask), memory_mask)
        losses = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none")
        if self.metrics is not None and not self.training:
            self.metrics(labels, scores, decoder_attention_mask, losses)
        counted = losses * decoder_attention_mask.flatten().to(losses.dtype)
        return counted.sum() * (self.config.lm_loss_weight / labels.shape[0])

    def encode(self, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the encoder's output (B, S, C), with the term of its padding (B, 1, 1, S)."""
        self._check_length(input_ids, "src_max_position_embeddings")
        x = self._embedded(self.embedding, input_ids)
        if self.encoder_bias is not None:
            bias = self.encoder_bias(distances(input_ids.shape[1], x.device))
            mask = mask + bias.to(x.dtype)
        for layer in self.encoder:
            x = layer(x, None, mask)
        return self._left(self.encoder_norm(x))

    def decode(
        self, input_ids: torch.Tensor, memory: torch.Tensor, memory_mask: torch.Tensor
    ) -> torch.Tensor:
        """Return scores (B, T, vocabulary) of the next tokens, after reading a memory (B, S, C)."""
        self._check_length(input_ids, "tgt_max_position_embeddings")
        x = self._embedded(self.decoder_embedding or self.embedding, input_ids)
        before = distances(input_ids.shape[1], x.device)
        bias = None if self.decoder_bias is None else self.decoder_bias(before)
        mask = as_term(readable_keys(before), bias, x)
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        x = self._left(self.decoder_norm(x))
        scores: torch.Tensor = self.head(_scaled(x, self.config.output_scale))
        return scores

    def initialize(self, seed: int) -> None:
        """Tie and initialize the parameters; each depends on (seed, its name) alone."""
        if self.config.share_embedding_weights:
            self.head.weight = (self.decoder_embedding or self.embedding).weight
        fill_parameters(self, seed, NormalInitializer(std=1.0), initializers(self.config))
        if self.config.compute_eval_metrics:
            self.metrics = LanguageMetrics("eval/accuracy_lm", "eval/perplexity_lm")

    def _embedded(self, embedding: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        """Return embedded tokens with positions, (B, N, C)."""
        x, _ = self.position(embedding(tokens), None)
        x = self.dropout(_scaled(x, self.config.embeddings_scale))
        dropped: torch.Tensor = x
        if self.config.use_pre_encoder_decoder_dropout:
            dropped = self.dropout(x)
        return dropped

    def _left(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of a stack, with dropout if it has some."""
        return self.dropout(x) if self.config.use_dropout_outside_residual_path else x

    def _check_length(self, tokens: torch.Tensor, key: str) -> None:
        most = getattr(self.config, key)
        if tokens.shape[1] > most:
            raise ConfigError(
                f"the sequence must be at most {key} long",
                code="sequence-too-long",
                value=f"{tokens.shape[1]}, {key} {most}",
                remedy=f"raise {key}, or shorten the sequences of the data",
            )


class DecoderLayer(nn.Module):
    """Layer that reads its own sequence, then that of the encoder."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self._norm_first = config.norm_first
        self.attention_norm = norm(config)
        self.attention = attention(config)
        self.cross_attention_norm = norm(config)
        self.cross_attention = attention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        if self._norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), None, mask))
            read = self.cross_attention(self.cross_attention_norm(x), None, memory_mask, memory)
            x = x + self.dropout(read)
            added: torch.Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
            return added
        x = self.attention_norm(x + self.dropout(self.attention(x, None, mask)))
        read = self.cross_attention(x, None, memory_mask, memory)
        x = self.cross_attention_norm(x + self.dropout(read))
        normed: torch.Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return normed


def _scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x if factor == 1.0 else x * factor


def _bias(config: EncoderDecoderConfig, *, reads_later: bool) -> RelativeBias:
    buckets = config.relative_attention_num_buckets
    return RelativeBias(buckets, config.num_heads, reads_later=reads_later)


def initializers(config: EncoderDecoderConfig) -> Initializers:
    """Return the initializers of all weights."""
    weights = _of_2017(config) if config.use_transformer_initialization else _of_t5(config)
    return {**weights, "table.weight": _spread(1.0)}


def _of_t5(config: EncoderDecoderConfig) -> Initializers:
    """Return those of T5; with muP, what layers add shrinks with their number."""
    width, filters, size = config.d_model**-0.5, config.d_ff**-0.5, config.d_kv**-0.5
    is_mup = config.width_ratios is not None
    outer = NormalInitializer(std=width if is_mup else 1.0)
    plain = NormalInitializer(std=width)
    shrunk: Initializers = {}
    for stack, layers in (("encoder", config.encoder), ("decoder", config.decoder)):
        depth = (2 * layers.num_hidden_layers) ** -0.5 if is_mup else 1.0
        for number in range(layers.num_hidden_layers):
            for part in ("attention", "cross_attention"):
                name = f"{stack}.{number}.{part}.output.weight"
                shrunk[name] = NormalInitializer(std=width * depth)
            name = f"{stack}.{number}.feed_forward.down.weight"
            shrunk[name] = NormalInitializer(std=filters * depth)
    return {
        "embedding.weight": outer,
        "head.weight": outer,
        "query.weight": NormalInitializer(std=width * size),
        **dict.fromkeys(("key.weight", "value.weight", "up.weight", "gate.weight"), plain),
        **shrunk,
    }


def _of_2017(config: EncoderDecoderConfig) -> Initializers:
    """Return those of Vaswani et al. 2017, with the vendor's gains."""
    others = _spread(1 / 3)
    inner = _spread(1.0)
    return {
        "embedding.weight": TruncatedNormalInitializer(std=1.0),
        "head.weight": NormalInitializer(std=1.0),
        "query.weight": _spread((9 * config.d_kv) ** -0.5),
        **dict.fromkeys(("key.weight", "value.weight", "output.weight"), others),
        **dict.fromkeys(("up.weight", "gate.weight", "down.weight"), inner),
    }


def _spread(gain: float) -> WeightInitializer:
    """Return uniform weights of variance 2 gain^2 / (inputs + outputs)."""
    return XavierInitializer(name="xavier_uniform", gain=gain)


ENCODER_DECODER = ModelFamily(EncoderDecoderModel, EncoderDecoderConfig)
