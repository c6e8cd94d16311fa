"""Dense passage retrieval (Karpukhin et al. 2020, arXiv:2004.04906).

Shapes: B questions, in groups of G; P passages of a question, the right one first; T sequence;
C hidden.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import nn

from modelzoo.models.bert.config import TunedConfig
from modelzoo.models.bert.model import BertEncoder
from modelzoo.models.metrics import RetrievalMetrics
from waferstream.core.program.micro_batches import Cut, check_groups
from waferstream.core.rng import stream_key
from waferstream.workload.model_config import Feature, ModelConfig
from waferstream.workload.models import ModelFamily

PoolerType = Literal["mean", "cls", "ffn_pooler"]

_NUM_PASSAGES = 2
"""Passages of a question in data without files: its own and a hard negative, as in the published
model (Karpukhin et al. 2020, section 5.1)."""


class TextEncoderConfig(TunedConfig):
    """An encoder of questions or of passages."""

    name: str = "dpr/encoder"
    pad_token_id: NonNegativeInt | None = 0
    """Token whose vector gets no gradient where it is embedded."""
    disable_nsp: bool = False
    """Whether tokens have no segments."""
    pooler_nonlinearity: Literal["tanh"] = "tanh"
    """Of the pooler ``ffn_pooler``."""
    add_pooling_layer: Any = None
    """No effect: ``pooler_type`` states whether there is a pooler."""

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        return self.token_features(sequence_length)

    @model_validator(mode="before")
    @classmethod
    def _segments_of_sentence_pairs(cls, given: Any) -> Any:
        """Let tokens have as many segments as sentence pairs need, unless a file states them."""
        if isinstance(given, dict) and given.get("num_segments") is None:
            return {**given, "num_segments": 0 if given.get("disable_nsp") else 2}
        return given


class DprConfig(ModelConfig):
    """Encoders of questions and passages, whose products tell which passage answers a question.

    Karpukhin et al. 2020, "Dense passage retrieval", arXiv:2004.04906.
    """

    name: str = "dpr"
    q_encoder: TextEncoderConfig | None = None
    """Encoder of questions."""
    ctx_encoder: TextEncoderConfig | None = None
    """Encoder of passages."""
    encoder: TextEncoderConfig | None = None
    """Section of both encoders, instead of the two."""
    use_biencoder: Literal[True] = True
    """Must be true: questions and passages have encoders of their own."""
    group_size: PositiveInt = 8
    """Consecutive questions of a batch whose passages are negatives of each other.

    Micro-batches and systems never cut a group, so the loss depends on neither; the size of a
    micro-batch must be a multiple of it, as those of ``auto`` are for the published batches of 128
    and 64.
    """
    pooler_type: PoolerType = "cls"
    """What stands for a text: the mean of its tokens, the first one, or a projection of that."""
    softmax_temperature: PositiveFloat = 1.0
    """Divisor of the scores."""
    mutual_information: bool = False
    """Whether passages also have to find their question among those of the group."""
    compute_eval_metrics: bool = False
    """Whether an evaluation computes the accuracy, and the mean rank of the right passage."""
    selected_encoder: Literal["q_encoder", "ctx_encoder", "encoder"] | None = None
    """No effect: for the embedding of texts after a training."""

    @property
    def group_of_samples(self) -> int:
        return self.group_size

    @property
    def question_encoder(self) -> TextEncoderConfig:
        """Encoder of questions."""
        found = self.encoder or self.q_encoder
        assert found is not None, "checked when the configuration was read"
        return found

    @property
    def passage_encoder(self) -> TextEncoderConfig:
        """Encoder of passages."""
        found = self.encoder or self.ctx_encoder
        assert found is not None, "checked when the configuration was read"
        return found

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        questions = (
            Feature(f"questions_{each.name}", each.shape, each.below)
            for each in self.question_encoder.features(sequence_length)
        )
        passages = (
            Feature(f"ctx_{each.name}", (_NUM_PASSAGES, *each.shape), each.below)
            for each in self.passage_encoder.features(sequence_length)
        )
        return *questions, *passages

    @model_validator(mode="after")
    def _states_both_encoders(self) -> Self:
        given = tuple(each is not None for each in (self.encoder, self.q_encoder, self.ctx_encoder))
        if given not in {(True, False, False), (False, True, True)}:
            raise ValueError("encoder, or q_encoder and ctx_encoder, must be given")
        sizes = self.question_encoder.hidden_size, self.passage_encoder.hidden_size
        if sizes[0] != sizes[1]:
            raise ValueError(f"both encoders must have one hidden_size; got {sizes}")
        return self


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


DPR = ModelFamily(DprModel, DprConfig)
