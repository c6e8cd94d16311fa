"""Configuration of encoders, masked language models and classifiers (Model Zoo 2.10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    model_validator,
)
from pydantic import field_validator as check

from modelzoo.models.blocks.initializers import NormalInitializer, WeightInitializer
from modelzoo.models.blocks.transformer_config import Nonlinearity, Residual
from modelzoo.models.mup import MupConfig
from waferstream.workload.model_config import Feature

_READING = ("query", "key", "value")
_RATES = ("embedding_dropout_rate", "attention_dropout_rate")


class EncoderConfig(MupConfig):
    """A bidirectional transformer over tokens (Devlin et al. 2019, BERT)."""

    rates_like_dropout: ClassVar[tuple[str, ...]] = _RATES
    """Rates that are ``dropout_rate`` where a file has that alone; null always means so."""

    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    position_embedding_type: Literal["learned", "fixed", "rotary"] = "learned"
    num_segments: NonNegativeInt = 2
    """Values of ``token_type_ids``, each with a trained vector; 0 for none."""
    embedding_layer_norm: bool = True
    pad_token_id: NonNegativeInt | None = 0
    """Token whose vector gets no gradient where it is embedded."""
    mask_padding_in_positional_embed: bool = False
    """Whether all padding has one position of its own (Liu et al. 2019, RoBERTa)."""
    token_dropout: bool = False
    """Embed masked tokens as 0 and rescale the others (Lin et al. 2023, ESM-2)."""
    mask_token_id: NonNegativeInt = 103
    norm_first: bool = False
    """Whether layers are pre-norm instead of post-norm."""
    use_final_layer_norm: bool = False
    """Whether a norm follows the last layer."""
    nonlinearity: Nonlinearity = Field(default="gelu", alias="encoder_nonlinearity")

    @property
    def has_pooler(self) -> bool:
        """Whether a projection of the first position stands for the sequence."""
        return False

    @property
    def position_offset(self) -> int:
        """Position of padding, before those of the tokens."""
        return self.pad_token_id or 0

    @property
    def learning_rate_scales(self) -> dict[str, float]:
        scales = super().learning_rate_scales
        if self.width_ratios is None or not self.has_pooler:
            return scales
        return {**scales, "pooler": 1 / self.width_ratios[0]}

    def initializers(self) -> tuple[WeightInitializer, dict[str, WeightInitializer]]:
        """Return the initializer of all weights, and others by the end of their name."""
        plain = NormalInitializer(std=self.initializer_range)
        if self.width_ratios is None:
            return plain, {}
        depth = (2 * self.num_hidden_layers) ** -0.5
        hidden, filters = (ratio**-0.5 for ratio in self.width_ratios)
        return plain, {
            **{f"attention.{part}.weight": plain.scaled(hidden) for part in _READING},
            "attention.output.weight": plain.scaled(hidden * depth),
            "feed_forward.up.weight": plain.scaled(hidden),
            "feed_forward.gate.weight": plain.scaled(hidden),
            "feed_forward.down.weight": plain.scaled(filters * depth),
        }

    @property
    def residual(self) -> Residual:
        return "pre_norm" if self.norm_first else "post_norm"

    def token_features(self, sequence_length: int | None) -> tuple[Feature, ...]:
        """Return the inputs of the encoder, by the argument names of ``forward``."""
        shape = (sequence_length or self.max_position_embeddings,)
        found = [Feature("input_ids", shape, self.vocab_size), Feature("attention_mask", shape, 2)]
        if self.num_segments:
            found.append(Feature("token_type_ids", shape, self.num_segments))
        return tuple(found)

    @model_validator(mode="before")
    @classmethod
    def _rates_like_dropout(cls, given: Any) -> Any:
        """Let rates that are not given be ``dropout_rate``, as at the vendor."""
        if not isinstance(given, Mapping) or given.get("dropout_rate") is None:
            return given
        absent = [name for name in cls.rates_like_dropout if name not in given]
        null = [name for name in _RATES if name in given and given[name] is None]
        return {**given, **dict.fromkeys((*absent, *null), given["dropout_rate"])}

    @check("mask_padding_in_positional_embed")
    @classmethod
    def _masks_learned_positions(cls, masks: bool, info: ValidationInfo) -> bool:
        if masks and info.data.get("position_embedding_type", "learned") != "learned":
            raise ValueError("requires position_embedding_type learned")
        if masks and info.data.get("pad_token_id", 0) is None:
            raise ValueError("requires pad_token_id")
        return masks

    @check("pad_token_id")
    @classmethod
    def _padding_is_a_token(cls, pad_token_id: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("vocab_size")
        if size is not None and pad_token_id is not None and pad_token_id >= size:
            raise ValueError(f"pad_token_id must be below vocab_size, which is {size}")
        return pad_token_id

    @check("mask_token_id")
    @classmethod
    def _mask_is_a_token(cls, mask_token_id: int, info: ValidationInfo) -> int:
        size = info.data.get("vocab_size", mask_token_id + 1)
        if info.data.get("token_dropout") and mask_token_id >= size:
            raise ValueError(f"mask_token_id must be below vocab_size, which is {size}")
        return mask_token_id


class BertConfig(EncoderConfig):
    """A bidirectional transformer that restores masked tokens (Devlin et al. 2019, BERT)."""

    name: str = "bert"
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
    def has_pooler(self) -> bool:
        return not self.disable_nsp

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        length = sequence_length or self.max_position_embeddings
        num_labels = self.max_predictions_per_seq or length
        found = [
            *self.token_features(sequence_length),
            Feature("labels", (num_labels,), self.vocab_size),
            Feature("masked_lm_mask", (num_labels,), 2),
        ]
        if self.max_predictions_per_seq is not None:
            found.append(Feature("masked_lm_positions", (num_labels,), length))
        if not self.disable_nsp:
            found.append(Feature("next_sentence_label", (), 2))
        return tuple(found)

    def for_data(self, section: Mapping[str, Any]) -> Self:
        most = section.get("max_predictions_per_seq")
        if not most or not section.get("gather_mlm_labels", True):
            return self
        return self.model_copy(update={"max_predictions_per_seq": most})


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
