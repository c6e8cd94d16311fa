"""The model keys that all transformers share (cluster_interface.md, section 2.4)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.feature import Feature
from wsc.core.config import Config

Rate = Field(default=0.1, ge=0, lt=1)

Nonlinearity = Literal["gelu", "relu", "swiglu"]

Residual = Literal["pre_norm", "post_norm", "parallel"]
"""How a layer adds to the residual stream; see modelzoo.models.layers."""


class ExtraAttentionParams(Config):
    """What ``multiquery_attention`` needs to know."""

    num_kv_groups: PositiveInt = 1
    """Heads of keys and values, each shared by num_heads / num_kv_groups query heads."""


class TransformerConfig(Config):
    """A stack of attention and feed-forward layers. Names and defaults are the vendor's."""

    is_causal: ClassVar[bool] = False
    """Whether a position sees only itself and those before it."""

    name: str
    """Looked up in modelzoo.models.registry."""

    # Sizes
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    num_heads: PositiveInt = 12
    filter_size: PositiveInt = 3072

    # Norm and dropout
    embedding_dropout_rate: float = Rate
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    layer_norm_epsilon: PositiveFloat = 1e-5
    dropout_rate: float = Rate
    """Of what attention and feed-forward add to the residual stream."""

    # Attention
    attention_type: Literal["scaled_dot_product", "dot_product"] = "scaled_dot_product"
    attention_module: Literal["aiayn_attention", "multiquery_attention"] = "aiayn_attention"
    extra_attention_params: ExtraAttentionParams | None = None
    attention_dropout_rate: float = Rate
    attention_softmax_fp32: bool = True
    """Scores go to a softmax in fp32 as a tensor of their own.

    Language models leave scores to a fused kernel, which sums in fp32 in any case and keeps them as
    wide as activations: the vendor's, too, turn this off at precision_opt_level 1 with cbfloat16
    (modelzoo R2.4, models/nlp/*/model.py); its DiT does not.
    """
    use_projection_bias_in_attention: bool = True
    """Biases of query, key and value."""
    use_ffn_bias_in_attention: bool = True
    """Bias of the projection that follows attention."""

    # Feed-forward
    nonlinearity: Nonlinearity = "gelu"
    use_ffn_bias: bool = True

    # Initialization
    initializer_range: NonNegativeFloat = 0.02
    """Standard deviation of the initial weights."""

    @property
    def head_dim(self) -> int:
        """Elements of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values."""
        if self.attention_module == "aiayn_attention":
            return self.num_heads
        return (self.extra_attention_params or ExtraAttentionParams()).num_kv_groups

    @property
    def residual(self) -> Residual:
        """How a layer adds to the residual stream."""
        return "pre_norm"

    @property
    def shares_layer_norm(self) -> bool:
        """Whether the two parts of a parallel layer read through one norm."""
        return False

    @abstractmethod
    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        """What the model reads per sample, by the names of its ``forward``.

        ``sequence_length`` is the longest that the model takes unless given; a model that does not
        read sequences leaves it aside.
        """

    @check("num_heads")
    @classmethod
    def _heads_divide_hidden(cls, num_heads: int, info: ValidationInfo) -> int:
        hidden_size = info.data.get("hidden_size", num_heads)
        if hidden_size % num_heads:
            raise ValueError(f"num_heads divides hidden_size, which is {hidden_size}")
        return num_heads

    @check("extra_attention_params")
    @classmethod
    def _groups_divide_heads(
        cls, extra: ExtraAttentionParams | None, info: ValidationInfo
    ) -> ExtraAttentionParams | None:
        if extra is None:
            return extra
        if info.data.get("attention_module") == "aiayn_attention":
            raise ValueError(
                "extra_attention_params goes with attention_module multiquery_attention"
            )
        num_heads = info.data.get("num_heads", extra.num_kv_groups)
        if num_heads % extra.num_kv_groups:
            raise ValueError(f"num_kv_groups divides num_heads, which is {num_heads}")
        return extra
