"""The model keys that all language models share: their vocabulary and their positions."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.transformer_config import TransformerConfig


class LanguageConfig(TransformerConfig):
    """A transformer over a sequence of tokens. Names and defaults are the vendor's."""

    vocab_size: PositiveInt = 50257
    max_position_embeddings: PositiveInt = 1024
    share_embedding_weights: bool = True
    """One matrix embeds tokens and scores them."""
    position_embedding_type: Literal["learned", "rotary"] = "learned"
    rotary_dim: PositiveInt | None = None
    """Leading elements of each head that are rotated; all of them by default."""
    rope_theta: PositiveFloat = 10000.0

    @property
    def rotated_dim(self) -> int:
        """Elements of a head that rotary embedding rotates."""
        return self.rotary_dim or self.head_dim

    @check("rotary_dim")
    @classmethod
    def _rotates_pairs_of_a_head(cls, rotary_dim: int | None, info: ValidationInfo) -> int | None:
        if {"hidden_size", "num_heads", "position_embedding_type"} - info.data.keys():
            return rotary_dim
        if info.data["position_embedding_type"] != "rotary":
            return rotary_dim
        head_dim = info.data["hidden_size"] // info.data["num_heads"]
        rotated = rotary_dim or head_dim
        if rotated % 2 or rotated > head_dim:
            raise ValueError(
                f"rotary_dim is even and at most hidden_size / num_heads, which is {head_dim}"
            )
        return rotary_dim
