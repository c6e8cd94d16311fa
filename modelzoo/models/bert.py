"""Masked language models in ordinary PyTorch: BERT and ESM-2.

Configuration keys: cluster_interface.md, section 2.4.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check
from torch import nn

from modelzoo.models.attention_mask import padding_mask
from modelzoo.models.initializers import NormalInitializer, fill_parameters
from modelzoo.models.layers import check_length, norm, position_embedding
from modelzoo.models.registry import register_model
from modelzoo.models.residual_layers import transformer_layers
from modelzoo.models.transformer_config import Feature, LanguageConfig, Nonlinearity, Residual
from wsc.core.errors import DataError

_MASKED_IN_TRAINING = 0.15 * 0.8
"""Share of tokens that the mask token replaces: 15 % are chosen, 80 % of those masked."""


class BertConfig(LanguageConfig):
    """A bidirectional transformer that restores masked tokens (Devlin et al. 2019, BERT)."""

    name: str = "bert"
    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    position_embedding_type: Literal["learned", "fixed", "rotary"] = "learned"
    num_segments: NonNegativeInt = 2
    """Values of ``token_type_ids``, each with a trained vector; 0 for none."""
    embedding_layer_norm: bool = True
    token_dropout: bool = False
    """Embed masked tokens as 0 and rescale the others (Lin et al. 2023, ESM-2)."""
    mask_token_id: NonNegativeInt = 103
    norm_first: bool = False
    """Whether layers are pre-norm instead of post-norm."""
    use_final_layer_norm: bool = False
    """Whether a norm follows the last layer."""
    nonlinearity: Nonlinearity = Field(default="gelu", alias="encoder_nonlinearity")
    mlm_nonlinearity: Literal["gelu", "relu"] = "gelu"
    pooler_nonlinearity: Literal["tanh"] = "tanh"

    # Objective
    disable_nsp: bool = False
    """Whether next-sentence prediction is left out."""
    max_predictions_per_seq: PositiveInt | None = None
    """Labels per sample, at ``masked_lm_positions``; by default one at every position."""
    mlm_loss_weight: PositiveFloat = 1.0
    """Factor on the sum of the masked tokens' losses per sample; usually 1 / their number."""

    @property
    def residual(self) -> Residual:
        return "pre_norm" if self.norm_first else "post_norm"

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        length = sequence_length or self.max_position_embeddings
        num_labels = self.max_predictions_per_seq or length
        found = [
            Feature("input_ids", (length,), self.vocab_size),
            Feature("attention_mask", (length,), 2),
            Feature("labels", (num_labels,), self.vocab_size),
            Feature("masked_lm_mask", (num_labels,), 2),
        ]
        if self.max_predictions_per_seq is not None:
            found.append(Feature("masked_lm_positions", (num_labels,), length))
        if self.num_segments:
            found.append(Feature("token_type_ids", (length,), self.num_segments))
        if not self.disable_nsp:
            found.append(Feature("next_sentence_label", (), 2))
        return tuple(found)

    @check("mask_token_id")
    @classmethod
    def _mask_is_a_token(cls, mask_token_id: int, info: ValidationInfo) -> int:
        size = info.data.get("vocab_size", mask_token_id + 1)
        if info.data.get("token_dropout") and mask_token_id >= size:
            raise ValueError(f"mask_token_id must be below vocab_size, which is {size}")
        return mask_token_id


class EsmConfig(BertConfig):
    """ESM-2 on proteins: rotary positions, pre-norm, no sentence pairs (Lin et al. 2023)."""

    name: str = "esm2"
    vocab_size: PositiveInt = 33
    max_position_embeddings: PositiveInt = 1026
    position_embedding_type: Literal["learned", "rotary"] = "rotary"
    num_segments: NonNegativeInt = 0
    embedding_layer_norm: bool = False
    token_dropout: bool = True
    mask_token_id: NonNegativeInt = 32
    norm_first: bool = True
    use_final_layer_norm: bool = True
    disable_nsp: bool = True


@register_model("esm2", config=EsmConfig)
@register_model("bert", config=BertConfig)
class BertModel(nn.Module):
    """Bidirectional transformer: partly masked tokens to loss.

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
        """Return the fp32 scalar loss, mean over samples.

        Args:
            input_ids: Tokens, int64 (B, T).
            attention_mask: 0 at padding, (B, T).
            labels: Original tokens at the P masked positions, (B, P); (B, T) without positions.
            masked_lm_mask: 1 for labels that count, shaped as ``labels``.
            masked_lm_positions: Positions of the labels, (B, P).
            token_type_ids: Segment of each token, (B, T).
            next_sentence_label: Class of the sentence pair, (B,).

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
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
        """Return the activations of the last layer, (B, T, C)."""
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
        """Return the weighted loss of the counted labels, per sample."""
        losses = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none")
        summed = (losses * counted.flatten().to(losses.dtype)).sum()
        return summed * (self.config.mlm_loss_weight / len(labels))

    def initialize(self, seed: int) -> None:
        """Tie and initialize the parameters; each depends on (seed, its name) alone."""
        if self.config.share_embedding_weights:
            self.mlm.head.weight = self.embedding.token.weight
        fill_parameters(self, seed, NormalInitializer(std=self.config.initializer_range))


class Embedding(nn.Module):
    """Sum of token, position and segment vectors, normalized."""

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
        """Return the embedded tokens (B, T, C) and the rotation for attention, if any."""
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


class NextSentenceHead(nn.Module):
    """Scores of whether the second segment follows the first, from the first position."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, encoded: torch.Tensor) -> torch.Tensor:
        """Return scores (B, 2) of activations (B, T, C)."""
        scores: torch.Tensor = self.classifier(self.pooler(encoded[:, 0]).tanh())
        return scores


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


def _at(encoded: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
    """Return the activations (B, P, C) at (B, P) positions; all of them without positions."""
    if positions is None:
        return encoded
    return encoded.gather(1, positions[..., None].expand(-1, -1, encoded.shape[-1]))
