"""Masked language models in ordinary PyTorch: BERT and ESM-2."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.bert.config import BertConfig, EsmConfig
from modelzoo.models.bert.encoder import BertEncoder, SequenceHead, gathered, needed, weighted_loss
from modelzoo.models.blocks.layers import norm
from modelzoo.models.registry import register_model


@register_model("esm2", config=EsmConfig)
@register_model("bert", config=BertConfig)
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
