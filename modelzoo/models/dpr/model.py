"""Dense passage retrieval (Karpukhin et al. 2020, arXiv:2004.04906).

Shapes: B questions, in groups of G; P passages of a question, the right one first; T sequence;
C hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.bert.encoder import BertEncoder
from modelzoo.models.dpr.config import DprConfig, PoolerType, TextEncoderConfig
from modelzoo.models.metrics import RetrievalMetrics
from modelzoo.models.registry import register_model
from waferstream.core.program.micro_batches import Cut, check_groups
from waferstream.core.rng import stream_key


@register_model("dpr", config=DprConfig)
class DprModel(nn.Module):
    """Encoders of questions and of passages: texts to loss.

    The negatives of a question are the other passages of its group, ``group_size`` consecutive
    questions of a batch.
    """

    def __init__(self, config: DprConfig) -> None:
        super().__init__()
        self.config = config
        self.question_encoder = TextEncoder(config.question_encoder, config.pooler_type)
        self.ctx_encoder = TextEncoder(config.passage_encoder, config.pooler_type)
        self.metrics: RetrievalMetrics | None = None

    def forward(
        self,
        questions_input_ids: torch.Tensor,
        questions_attention_mask: torch.Tensor,
        ctx_input_ids: torch.Tensor,
        ctx_attention_mask: torch.Tensor,
        questions_token_type_ids: torch.Tensor | None = None,
        ctx_token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over questions.

        Args:
            questions_input_ids: Tokens, int64 (B, T).
            questions_attention_mask: 0 at padding, (B, T).
            ctx_input_ids: Tokens of passages, int64 (B, P, T).
            ctx_attention_mask: 0 at padding, (B, P, T).
            questions_token_type_ids: Segment of each token, (B, T).
            ctx_token_type_ids: Segment of each token, (B, P, T).

        Raises:
            ConfigError: B is no multiple of ``group_size``, or T is more than
                ``max_position_embeddings``.
        """
        group, num_passages = self.config.group_size, ctx_input_ids.shape[1]
        check_groups(Cut(questions_input_ids.shape[0], 1), group)
        questions = self.question_encoder(
            questions_input_ids, questions_attention_mask, questions_token_type_ids
        ).unflatten(0, (-1, group))
        types = None if ctx_token_type_ids is None else ctx_token_type_ids.flatten(0, 1)
        passages = self.ctx_encoder(
            ctx_input_ids.flatten(0, 1), ctx_attention_mask.flatten(0, 1), types
        ).unflatten(0, (-1, group * num_passages))
        scores = questions @ passages.transpose(1, 2)
        right = torch.arange(group, device=scores.device) * num_passages
        if self.metrics is not None and not self.training:
            self.metrics(scores, right)
        loss = self._loss(scores, right)
        if not self.config.mutual_information:
            return loss
        share = 1 / (1 + num_passages)
        found = passages[:, ::num_passages] @ questions.transpose(1, 2)
        return (1 - share) * loss + share * self._loss(found, right // num_passages)

    @property
    def group_of_samples(self) -> int:
        """Samples that share a loss, which no micro-batch may cut."""
        return self.config.group_of_samples

    def _loss(self, scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of scores (groups, G, choices); ``right`` (G,) is right."""
        scaled = scores.float() / self.config.softmax_temperature
        labels = right.expand(scores.shape[0], -1)
        return F.cross_entropy(scaled.flatten(0, 1), labels.flatten())

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        self.question_encoder.initialize(stream_key(seed, "question_encoder"))
        self.ctx_encoder.initialize(stream_key(seed, "ctx_encoder"))
        if self.config.compute_eval_metrics:
            self.metrics = RetrievalMetrics()


class TextEncoder(BertEncoder):
    """An encoder with a vector for each text."""

    def __init__(self, config: TextEncoderConfig, pooler_type: PoolerType) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        self.pooler = nn.Linear(hidden, hidden) if pooler_type == "ffn_pooler" else None
        self._is_mean = pooler_type == "mean"

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the vectors (N, C) of texts; the arguments are those of ``encode``, (N, T)."""
        encoded = self.encode(input_ids, attention_mask, token_type_ids)
        if self._is_mean:
            counted = attention_mask[..., None].to(encoded.dtype)
            return (encoded * counted).sum(1) / counted.sum(1).clamp(min=1)
        first = encoded[:, 0]
        return first if self.pooler is None else self.pooler(first).tanh()
