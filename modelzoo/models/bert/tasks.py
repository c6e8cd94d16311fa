"""Encoders that classify: sequences, tokens, and sentences of a document.

Shapes: B batch, T sequence, S sentences. ``input_ids``, ``attention_mask`` and ``token_type_ids``
are those of ``BertEncoder.encode``, and so are its errors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.bert.config import (
    ClassifierConfig,
    SummarizationConfig,
    TokenClassifierConfig,
)
from modelzoo.models.bert.model import BertEncoder, SequenceHead, gathered, weighted_loss
from modelzoo.models.metrics import ClassifierMetrics
from waferstream.workload.models import ModelFamily


class ClassifierModel(BertEncoder):
    """Classes of sequences, from the first position."""

    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        self.head = SequenceHead(config, config.num_labels, config.task_dropout)
        self.metrics: ClassifierMetrics | None = None

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        is_matched: torch.Tensor | None = None,
        is_mismatched: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            labels: Class of each sequence, (B,).
            is_matched: 1 for samples from the domains of the training data, (B,).
            is_mismatched: 1 for samples from others, (B,).
        """
        scores = self.head(self.encode(input_ids, attention_mask, token_type_ids))
        if self.metrics is not None and not self.training:
            self.metrics(labels, scores.argmax(-1), is_matched, is_mismatched)
        return F.cross_entropy(scores.float(), labels)

    def initialize(self, seed: int) -> None:
        super().initialize(seed)
        if self.config.compute_eval_metrics:
            self.metrics = ClassifierMetrics(self.config.num_labels)


class TokenClassifierModel(BertEncoder):
    """Classes of tokens."""

    config: TokenClassifierConfig

    def __init__(self, config: TokenClassifierConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.encoder_output_dropout_rate)
        self.classifier = nn.Linear(config.hidden_size, config.num_classes)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        loss_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            labels: Class of each token, (B, T).
            loss_mask: 1 for labels that count, (B, T).
        """
        encoded = self.encode(input_ids, attention_mask, token_type_ids)
        weight = self.config.loss_weight
        if self.config.include_padding_in_loss:
            weight /= input_ids.shape[1]
        return weighted_loss(self.classifier(self.dropout(encoded)), labels, loss_mask, weight)


class SummarizationModel(BertEncoder):
    """Sentences of a summary: those of a document that belong to it, from their first tokens."""

    config: SummarizationConfig

    def __init__(self, config: SummarizationConfig) -> None:
        super().__init__(config)
        bias = config.use_cls_bias
        self.classifier = nn.Linear(config.hidden_size, config.num_labels, bias=bias)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        cls_indices: torch.Tensor,
        cls_weights: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            labels: 1 for sentences of the summary, (B, S).
            cls_indices: Position of the first token of each sentence, (B, S).
            cls_weights: 1 for sentences, 0 for padding, fp32 (B, S).
        """
        encoded = self.encode(input_ids, attention_mask, token_type_ids)
        scores = self.classifier(gathered(encoded, cls_indices))
        return weighted_loss(scores, labels, cls_weights, self.config.loss_weight)


CLASSIFIER = ModelFamily(ClassifierModel, ClassifierConfig)
TOKEN_CLASSIFIER = ModelFamily(TokenClassifierModel, TokenClassifierConfig)
SUMMARIZATION = ModelFamily(SummarizationModel, SummarizationConfig)
