"""Decoder-only transformers in ordinary PyTorch: GPT-2, GPT-3, GPT-J, LLaMA and their relatives."""

from __future__ import annotations

import torch

from modelzoo.models.blocks.language_loss import language_loss, token_losses
from modelzoo.models.blocks.layers import Routing
from modelzoo.models.gpt.config import FAMILIES, PARALLEL_FAMILIES, GptConfig, GptjConfig
from modelzoo.models.gpt.decoder import Decoder
from modelzoo.models.metrics import LanguageMetrics
from modelzoo.models.registry import register_model


@register_model(*PARALLEL_FAMILIES, config=GptjConfig)
@register_model(*FAMILIES, config=GptConfig)
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
