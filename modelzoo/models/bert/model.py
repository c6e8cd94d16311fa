"""Masked language models in ordinary PyTorch, BERT and ESM-2, and the encoder of both.

Its layers read in both directions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.bert.config import BertConfig, EncoderConfig, EsmConfig
from modelzoo.models.blocks.attention_mask import (
    as_term,
    distances,
    padding_mask,
    readable_in_document,
)
from modelzoo.models.blocks.initializers import fill_parameters
from modelzoo.models.blocks.layers import LearnedPosition, check_length, norm, position_embedding
from modelzoo.models.blocks.residual_layers import transformer_layers
from waferstream.core.errors import DataError
from waferstream.workload.models import ModelFamily

_MASKED_IN_TRAINING = 0.15 * 0.8
"""Share of tokens that the mask token replaces: 15 % are chosen, 80 % of those masked."""

Packing = tuple[torch.Tensor, torch.Tensor]
"""Of packed documents: later tokens of the same document, and positions within it, (B, T)."""


class BertEncoder(nn.Module):
    """Bidirectional transformer: tokens to activations, which the heads of a model read.

    Activations have the dtype of the parameters. ``initialize`` fills the parameters.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = transformer_layers(config)
        self.norm = norm(config) if config.use_final_layer_norm else None

    def encode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Return the activations of the last layer, (B, T, C).

        Args:
            input_ids: Tokens, int64 (B, T).
            attention_mask: 0 at padding, (B, T).
            token_type_ids: Segment of each token, (B, T).
            packing: Of packed documents.

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
        """
        check_length(self.config, input_ids.shape[1])
        positions = None if packing is None else packing[1]
        x, rotation = self.embedding(input_ids, attention_mask, token_type_ids, positions)
        if packing is None:
            mask = padding_mask(attention_mask, x.dtype)
        else:
            before = distances(input_ids.shape[1], x.device)
            mask = as_term(readable_in_document(before, *packing), None, x)
        for layer in self.encoder:
            x = layer(x, rotation, mask)
        if self.norm is not None:
            x = self.norm(x)
        encoded: torch.Tensor = x
        return encoded

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        fill_parameters(self, seed, *self.config.initializers())
        if self.config.pad_token_id:  # 0 keeps its vector, as at the vendor
            with torch.no_grad():
                self.embedding.token.weight[self.config.pad_token_id].zero_()


class Embedding(nn.Module):
    """Sum of token, position and segment vectors, normalized."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        padding = config.pad_token_id
        self.token = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=padding)
        self.padding: int | None = None
        if config.mask_padding_in_positional_embed:
            self.padding = padding
            positions = config.max_position_embeddings + config.position_offset + 1
            self.position: nn.Module = LearnedPosition(positions, config.hidden_size)
        else:
            self.position = position_embedding(config)
        segments = config.num_segments
        self.segment = nn.Embedding(segments, config.hidden_size) if segments else None
        self.norm = norm(config) if config.embedding_layer_norm else None
        self.dropout = nn.Dropout(config.embedding_dropout_rate)
        self._scale = config.embeddings_scale
        self._mask_token_id = config.mask_token_id if config.token_dropout else None

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor] | None]:
        """Return the embedded tokens (B, T, C) and the rotation for attention, if any."""
        x = self.token(input_ids)
        if self._mask_token_id is not None:
            x = drop_masked(x, input_ids == self._mask_token_id, attention_mask)
        if self.padding is not None and position_ids is None:
            position_ids = positions_without_padding(input_ids, self.padding)
        x, rotation = self.position(x, position_ids)
        if self.segment is not None:
            x = x + self.segment(needed("token_type_ids", token_type_ids))
        if self._scale != 1.0:
            x = x * self._scale
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x), rotation


class SequenceHead(nn.Module):
    """Scores of the classes of a sequence, from its first position."""

    def __init__(self, config: EncoderConfig, num_classes: int, dropout_rate: float = 0.0) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(dropout_rate) if dropout_rate else nn.Identity()
        self.classifier = nn.Linear(config.hidden_size, num_classes)

    def forward(self, encoded: torch.Tensor) -> torch.Tensor:
        """Return scores (B, classes) of activations (B, T, C)."""
        pooled = self.pooler(encoded[:, 0]).tanh()
        scores: torch.Tensor = self.classifier(self.dropout(pooled))
        return scores


def positions_without_padding(input_ids: torch.Tensor, padding: int) -> torch.Tensor:
    """Return the positions (B, T) of tokens, which are counted from 1 after that of padding.

    Padding is at the end of a sequence; its position is the number of its token, as in fairseq's
    RoBERTa (Liu et al. 2019).
    """
    counted = torch.arange(1, input_ids.shape[1] + 1, device=input_ids.device)
    return torch.where(input_ids != padding, counted, 0) + padding


def drop_masked(
    embedded: torch.Tensor, is_masked: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Zero the vectors of masked tokens and rescale the others to their level in training.

    The scale is (1 - 0.12) / (1 - share of masked tokens in the sample): Lin et al. 2023,
    "Evolutionary-scale prediction of atomic-level protein structure", supplement A.1.
    """
    share = is_masked.sum(1) / attention_mask.sum(1).clamp(min=1)
    scale = (1 - _MASKED_IN_TRAINING) / (1 - share).clamp(min=_MASKED_IN_TRAINING)
    kept = embedded.masked_fill(is_masked[..., None], 0)
    return kept * scale[:, None, None].to(embedded.dtype)


def needed(name: str, feature: torch.Tensor | None) -> torch.Tensor:
    """Return the feature that the configuration requires in every batch; DataError without it."""
    if feature is None:
        raise DataError(
            f"the batch must have {name!r}",
            code="feature-missing",
            rule="the model's configuration needs it",
        )
    return feature


def gathered(encoded: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
    """Return the activations (B, P, C) at (B, P) positions; all of them without positions."""
    if positions is None:
        return encoded
    return encoded.gather(1, positions[..., None].expand(-1, -1, encoded.shape[-1]))


def weighted_loss(
    scores: torch.Tensor, labels: torch.Tensor, counted: torch.Tensor, weight: float
) -> torch.Tensor:
    """Return ``weight`` times the sum of the counted losses per sample, fp32.

    Args:
        scores: (B, N, classes).
        labels: (B, N).
        counted: 1 for labels that count, (B, N).
        weight: Factor on the sum.
    """
    losses = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none")
    return (losses * counted.flatten().to(losses.dtype)).sum() * (weight / labels.shape[0])


class BertModel(BertEncoder):
    """Bidirectional transformer: partly masked tokens to loss.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters and, if the configuration shares them, ties the head's weights to the embedding's.
    """

    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.mlm = MaskedTokenHead(config)
        self.nsp = None if config.disable_nsp else SequenceHead(config, num_classes=2)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        masked_lm_mask: torch.Tensor,
        masked_lm_positions: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        attention_span: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            input_ids: Tokens, int64 (B, T).
            attention_mask: 0 at padding, (B, T).
            labels: Original tokens at the P masked positions, (B, P); (B, T) without positions.
            masked_lm_mask: 1 for labels that count, shaped as ``labels``.
            masked_lm_positions: Positions of the labels, (B, P).
            token_type_ids: Segment of each token, (B, T).
            next_sentence_label: Class of the sentence pair, (B,).
            attention_span: Later tokens of the same document, (B, T); for packed documents.
            position_ids: Positions within the documents, (B, T).

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
        """
        packing = None
        if attention_span is not None:
            packing = (attention_span, needed("position_ids", position_ids))
        encoded = self.encode(input_ids, attention_mask, token_type_ids, packing)
        scores = self._scaled(self.mlm(gathered(encoded, masked_lm_positions)))
        loss = weighted_loss(scores, labels, masked_lm_mask, self.config.mlm_loss_weight)
        if self.nsp is None:
            return loss
        follows = needed("next_sentence_label", next_sentence_label)
        return loss + F.cross_entropy(self._scaled(self.nsp(encoded)).float(), follows)

    def _scaled(self, scores: torch.Tensor) -> torch.Tensor:
        """Return scores of a head, scaled by the width of a muP model."""
        scale = self.config.logits_scale
        return scores if scale is None else scores * scale

    def initialize(self, seed: int) -> None:
        if self.config.share_embedding_weights:
            self.mlm.head.weight = self.embedding.token.weight
        super().initialize(seed)


class MaskedTokenHead(nn.Module):
    """Scores of the original token at each masked position."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = norm(config)
        self.head = nn.Linear(config.hidden_size, config.vocab_size)
        self._nonlinearity = F.relu if config.mlm_nonlinearity == "relu" else F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores (B, P, vocab_size) of activations (B, P, C)."""
        scores: torch.Tensor = self.head(self.norm(self._nonlinearity(self.transform(x))))
        return scores


BERT = ModelFamily(BertModel, BertConfig)
ESM2 = ModelFamily(BertModel, EsmConfig)
