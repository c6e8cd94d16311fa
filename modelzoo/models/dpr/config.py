"""Configuration of dense passage retrieval."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from modelzoo.models.bert.tasks_config import TunedConfig
from modelzoo.models.model_config import Feature, ModelConfig

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
