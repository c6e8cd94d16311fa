"""The model keys of params.yaml for masked language models: BERT and ESM-2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.feature import Feature
from modelzoo.models.language_config import LanguageConfig
from modelzoo.models.transformer_config import Nonlinearity, Residual


class BertConfig(LanguageConfig):
    """A bidirectional transformer that restores masked tokens (Devlin et al. 2019, BERT)."""

    name: str = "bert"
    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    num_segments: NonNegativeInt = 2
    """Kinds of ``token_type_ids``, each with a trained vector; 0 for none."""
    embedding_layer_norm: bool = True
    token_dropout: bool = False
    """Embed masked tokens as 0 and scale the others for it (Lin et al. 2023, ESM-2)."""
    mask_token_id: NonNegativeInt = 103
    norm_first: bool = False
    """Normalize what a layer's parts read rather than what they leave in the residual stream."""
    use_final_layer_norm: bool = False
    """Normalize once more after the last layer."""
    nonlinearity: Nonlinearity = Field(default="gelu", alias="encoder_nonlinearity")
    mlm_nonlinearity: Literal["gelu", "relu"] = "gelu"
    pooler_nonlinearity: Literal["tanh"] = "tanh"

    # Objective
    disable_nsp: bool = False
    """Leave out next-sentence prediction."""
    max_predictions_per_seq: PositiveInt | None = None
    """Labels per sample, at ``masked_lm_positions``; by default one at every position."""
    mlm_loss_weight: PositiveFloat = 1.0
    """Factor on the sum of the masked tokens' losses per sample; mostly 1 / their number."""

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
            raise ValueError(f"mask_token_id is below vocab_size, which is {size}")
        return mask_token_id


class EsmConfig(BertConfig):
    """ESM-2 on proteins: rotary, normalized first, without sentences (Lin et al. 2023)."""

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
