"""Configurations of encoders that classify: sequences, tokens, and sentences of a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from modelzoo.models.bert.config import EncoderConfig
from modelzoo.models.model_config import Feature


class TunedConfig(EncoderConfig):
    """An encoder that is trained further on a task, with a new head."""

    rates_like_dropout: ClassVar[tuple[str, ...]] = ("embedding_dropout_rate",)

    pad_token_id: NonNegativeInt | None = Field(default=0, alias="embedding_pad_token_id")
    """Token whose vector gets no gradient where it is embedded."""
    max_position_embeddings: PositiveInt = 1024

    mlm_loss_weight: Any = None
    """Of the training before; no effect."""
    mlm_nonlinearity: Any = None
    """Of the training before; no effect."""


class ClassifierConfig(TunedConfig):
    """A classifier of sequences or of pairs of them (Devlin et al. 2019, BERT, section 4.1)."""

    name: str = "bert/classifier"
    num_labels: PositiveInt
    problem_type: Literal["single_label_classification"]
    task_dropout: float = Field(ge=0, lt=1)
    """Dropout rate of what the classes are read from."""
    pooler_nonlinearity: Literal["tanh"] = "tanh"
    compute_eval_metrics: bool = False
    """Whether an evaluation computes accuracies, and of two classes the F1 score."""

    @property
    def has_pooler(self) -> bool:
        return True

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        return (*self.token_features(sequence_length), Feature("labels", (), self.num_labels))


class TokenClassifierConfig(TunedConfig):
    """A classifier of every token (Devlin et al. 2019, BERT, section 5.3)."""

    name: str = "bert/token_classifier"
    num_classes: PositiveInt
    encoder_output_dropout_rate: float = Field(ge=0, lt=1)
    dropout_rate: float = Field(default=0.0, ge=0, lt=1)
    embedding_dropout_rate: float = Field(default=0.0, ge=0, lt=1)
    attention_dropout_rate: float = Field(default=0.0, ge=0, lt=1)
    loss_weight: PositiveFloat = 1.0
    """Factor on the sum of the tokens' losses per sample."""
    include_padding_in_loss: bool = False
    """Whether padding has a loss, too; the sum is then divided by the length."""
    label_vocab_file: str | None = None
    """JSON file of the classes by name, which the data processor reads."""
    pooler_nonlinearity: Literal["tanh"] | None = None
    """No effect: there is no pooler."""
    compute_eval_metrics: Literal[False] = False

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        shape = (sequence_length or self.max_position_embeddings,)
        return (
            *self.token_features(sequence_length),
            Feature("labels", shape, self.num_classes),
            Feature("loss_mask", shape, 2),
        )


class SummarizationConfig(TunedConfig):
    """Tells which sentences belong to a summary (Liu 2019, BertSum, arXiv:1903.10318)."""

    rates_like_dropout: ClassVar[tuple[str, ...]] = ()

    name: str = "bert/extractive_summarization"
    num_labels: Literal[2] = 2
    use_cls_bias: bool = True
    """Whether the head has a bias."""
    loss_weight: PositiveFloat = 1.0
    """Factor on the sum of the sentences' losses per sample."""
    vocab_file: str | None = None
    """Vocabulary of the data processor."""
    pooler_nonlinearity: Literal["tanh"] | None = None
    """No effect: there is no pooler."""
    compute_eval_metrics: Literal[False] = False
    max_cls_tokens: PositiveInt = 50
    """Sentences of a sample; those of the data."""

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        length = sequence_length or self.max_position_embeddings
        shape = (self.max_cls_tokens,)
        return (
            *self.token_features(sequence_length),
            Feature("labels", shape, self.num_labels),
            Feature("cls_indices", shape, length),
            Feature("cls_weights", shape),
        )

    def for_data(self, section: Mapping[str, Any]) -> Self:
        most = section.get("max_cls_tokens")
        return self.model_copy(update={"max_cls_tokens": most}) if most else self
