"""Masked language models as BERT and ESM-2 are, in ordinary PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.bert_config import BertConfig
from modelzoo.models.initialization import fill_parameters
from modelzoo.models.layers import (
    check_length,
    norm,
    padding_mask,
    position_embedding,
    transformer_layers,
)
from wsc.core.errors import DataError

_MASKED_IN_TRAINING = 0.15 * 0.8
"""Share of tokens that the mask token replaces: 15 % are chosen, 80 % of those masked."""


class BertModel(nn.Module):
    """Tokens, some of them masked, in; loss out.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters and, if the configuration shares them, ties the head's weights to the embedding's.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = transformer_layers(config)
        self.norm = norm(config) if config.use_final_layer_norm else None
        self.mlm = MaskedTokenHead(config)
        self.nsp = None if config.disable_nsp else NextSentenceHead(config)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        masked_lm_mask: torch.Tensor,
        masked_lm_positions: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The fp32 scalar loss of int64 (B, T) tokens, mean over samples.

        ``attention_mask`` is 0 at padding. ``labels`` and ``masked_lm_mask``, which says which of
        them count, are (B, P) for the P ``masked_lm_positions``, or (B, T) without positions.
        ``next_sentence_label`` is (B,). Raises ConfigError if T is more than
        ``max_position_embeddings``.
        """
        encoded = self.encode(input_ids, attention_mask, token_type_ids)
        loss = self._mlm_loss(self.mlm(_at(encoded, masked_lm_positions)), labels, masked_lm_mask)
        if self.nsp is None:
            return loss
        follows = needed("next_sentence_label", next_sentence_label)
        return loss + F.cross_entropy(self.nsp(encoded).float(), follows)

    def encode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The last layer's activations (B, T, C)."""
        check_length(self.config, input_ids.shape[1])
        x, rotation = self.embedding(input_ids, attention_mask, token_type_ids)
        mask = padding_mask(attention_mask, x.dtype)
        for layer in self.encoder:
            x = layer(x, rotation, mask)
        if self.norm is not None:
            x = self.norm(x)
        encoded: torch.Tensor = x
        return encoded

    def _mlm_loss(
        self, scores: torch.Tensor, labels: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        losses = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none")
        summed = (losses * counted.flatten().to(losses.dtype)).sum()
        return summed * (self.config.mlm_loss_weight / len(labels))

    def initialize(self, seed: int) -> None:
        """Tie and fill the parameters; each depends on (seed, its name) alone."""
        if self.config.share_embedding_weights:
            self.mlm.head.weight = self.embedding.token.weight
        fill_parameters(self, seed, self.config.initializer_range)


class Embedding(nn.Module):
    """Tokens, positions and segments as vectors, summed and normalized."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = position_embedding(config)
        segments = config.num_segments
        self.segment = nn.Embedding(segments, config.hidden_size) if segments else None
        self.norm = norm(config) if config.embedding_layer_norm else None
        self.dropout = nn.Dropout(config.embedding_dropout_rate)
        self._mask_token_id = config.mask_token_id if config.token_dropout else None

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor] | None]:
        """(B, T) tokens and segments to (B, T, C), and the rotation that attention applies."""
        x = self.token(input_ids)
        if self._mask_token_id is not None:
            x = drop_masked(x, input_ids == self._mask_token_id, attention_mask)
        x, rotation = self.position(x)
        if self.segment is not None:
            x = x + self.segment(needed("token_type_ids", token_type_ids))
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x), rotation


class MaskedTokenHead(nn.Module):
    """Which token stood there: a transformed activation against every token's vector."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = norm(config)
        self.head = nn.Linear(config.hidden_size, config.vocab_size)
        self._nonlinearity = F.relu if config.mlm_nonlinearity == "relu" else F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.norm(self._nonlinearity(self.transform(x))))
        return scores


class NextSentenceHead(nn.Module):
    """Whether the second segment follows the first, from the first position's activation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, encoded: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.pooler(encoded[:, 0]).tanh())
        return scores


def drop_masked(
    embedded: torch.Tensor, is_masked: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Zero the vectors of masked tokens and scale the rest to the level of usual training.

    The scale is (1 - 0.12) / (1 - share of masked tokens in the sample): Lin et al. 2023,
    "Evolutionary-scale prediction of atomic-level protein structure", supplement A.1.
    """
    share = is_masked.sum(1) / attention_mask.sum(1).clamp(min=1)
    scale = (1 - _MASKED_IN_TRAINING) / (1 - share).clamp(min=_MASKED_IN_TRAINING)
    kept = embedded.masked_fill(is_masked[..., None], 0)
    return kept * scale[:, None, None].to(embedded.dtype)


def needed(name: str, feature: torch.Tensor | None) -> torch.Tensor:
    """The feature, which the configuration makes part of every batch; DataError without it."""
    if feature is None:
        raise DataError(f"the batch holds no {name!r}", rule="the model's configuration needs it")
    return feature


def _at(encoded: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
    """Activations (B, P, C) at (B, P) positions; all of them without positions."""
    if positions is None:
        return encoded
    return encoded.gather(1, positions[..., None].expand(-1, -1, encoded.shape[-1]))
