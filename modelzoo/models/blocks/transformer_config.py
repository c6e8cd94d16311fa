"""Model keys of params.yaml that all transformers share.

Names and defaults are the vendor's (Model Zoo 2.10, ``models/nlp/gpt2``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
)
from pydantic import field_validator as check

from modelzoo.models.blocks.initializers import InitializerKey
from modelzoo.models.blocks.memory_tokens import MemoryPlaces
from modelzoo.models.blocks.rotary import RopeScaling
from waferstream.core.config import Config, before
from waferstream.workload.model_config import LanguageSizes, ModelConfig

NoneIsZero = Annotated[NonNegativeInt, before(lambda v: v or 0, NonNegativeInt | None)]
"""A number for which null stands for 0."""


Spread = Literal["softmax", "sigmoid", "sinkhorn"]
"""How scores become shares of experts; ``sinkhorn`` is S-BASE (Clark et al. 2022)."""


class ExpertsConfig(Config):
    """Section ``moe``: experts and their router."""

    num_experts: NonNegativeInt = 0
    """0 or 1: one feed-forward network."""
    num_shared_experts: NoneIsZero = 0
    """Networks that every token passes."""
    top_k: PositiveInt = 1
    load_balancing_loss_coef: NonNegativeFloat = 0.0
    null_expert_bias: Annotated[
        NonNegativeFloat,
        before(lambda v: v or 0.0, NonNegativeFloat | None),
    ] = 0.0
    """Weight of an expert that returns nothing, in the normalization of the weights."""
    moe_implementation: Literal[
        "functional", "optimized", "experimental", "forge_experimental", "expert_parallel"
    ] = "experimental"
    """Kernels of the real machine; all compute the same."""
    router_use_bias: bool = False
    router_fp32: bool = True
    """Whether probabilities are computed in fp32."""
    routing_algorithm: Literal["learned", "hash", "uniform"] = "learned"
    """Whether a router chooses experts, the number of the token, or its place."""
    router_selection_nonlinearity: Spread = "softmax"
    expert_weighting_nonlinearity: Spread = "softmax"
    sinkhorn_n_iters: PositiveInt = 1
    """Steps of ``sinkhorn``, which evens out the choices of a sequence."""
    expert_weighting_normalization: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
    gate_initializer: InitializerKey = None
    """Of the router."""
    probability_before_ffn: bool = False
    """Whether what experts read is weighted instead of what they return."""

    @property
    def is_learned(self) -> bool:
        """Whether there is a router."""
        return self.routing_algorithm == "learned"

    @check("top_k")
    @classmethod
    def _chooses_among_experts(cls, top_k: int, info: ValidationInfo) -> int:
        experts = info.data.get("num_experts", 0)
        if experts > 1 and top_k > experts:
            raise ValueError(f"top_k must be at most num_experts, which is {experts}")
        return top_k

    @check("expert_weighting_normalization")
    @classmethod
    def _null_expert_is_normalized(cls, normalizes: bool, info: ValidationInfo) -> bool:
        if not normalizes and info.data.get("null_expert_bias"):
            raise ValueError("null_expert_bias requires expert_weighting_normalization")
        return normalizes

    @check("routing_algorithm")
    @classmethod
    def _fixed_routing_has_no_router(cls, algorithm: str, info: ValidationInfo) -> str:
        if algorithm == "learned":
            return algorithm
        for key in ("load_balancing_loss_coef", "num_shared_experts"):
            if info.data.get(key):
                raise ValueError(f"{key} requires routing_algorithm learned")
        if algorithm == "hash" and info.data.get("top_k", 1) > 1:
            raise ValueError("hash requires top_k 1: a token has one expert")
        return algorithm

    @check("router_selection_nonlinearity")
    @classmethod
    def _sinkhorn_is_balanced(cls, nonlinearity: str, info: ValidationInfo) -> str:
        if nonlinearity == "sinkhorn" and info.data.get("load_balancing_loss_coef"):
            raise ValueError("load_balancing_loss_coef must be 0: sinkhorn balances the experts")
        return nonlinearity


Rate = Field(default=0.1, ge=0, lt=1)

Nonlinearity = Literal[
    "gelu", "gelu_new", "quick_gelu", "relu", "squared_relu", "silu", "swiglu", "geglu",
    "geglu_new", "reglu", "clamped_glu",
]  # fmt: skip
"""``gelu_new`` is the approximation by tanh of GPT-2, ``quick_gelu`` that by a sigmoid of CLIP
(Hendrycks and Gimpel 2016, section 2).

Those with ``glu`` are gates; ``clamped_glu`` is that of gpt-oss.
"""

NormType = Literal["layernorm", "rmsnorm"]

Residual = Literal["pre_norm", "sandwich", "post_norm", "parallel"]
"""How a layer adds to the residual stream; see modelzoo.models.blocks.residual_layers."""

PositionEmbedding = Literal["learned", "fixed", "rotary", "alibi", "relative"]


class ExtraAttentionParams(Config):
    """Arguments of ``multiquery_attention``."""

    num_kv_groups: PositiveInt = 1
    """Heads of keys and values, each shared by num_heads / num_kv_groups query heads."""


@dataclass(frozen=True)
class Scores:
    """How attention computes its scores."""

    scale: float
    cap: float | None = None
    """Bound that scores approach by tanh."""
    norm_type: NormType | None = None
    """Normalization of queries and keys over a head."""
    norm_epsilon: float = 1e-5
    has_sinks: bool = False
    """Whether each head has a trained score that competes with those of the keys."""


class TransformerConfig(ModelConfig):
    """A stack of attention and feed-forward layers."""

    is_causal: ClassVar[bool] = False
    """Whether a position attends only to itself and earlier positions."""

    # Sizes
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    attention_inner_dim: PositiveInt | None = None
    """Elements of all query heads together; hidden_size by default."""
    num_heads: PositiveInt = 12
    filter_size: PositiveInt = 3072

    # Norm and dropout
    embedding_dropout_rate: float = Rate
    norm_type: NormType = "layernorm"
    layer_norm_epsilon: PositiveFloat = 1e-5
    dropout_rate: float = Rate
    """Dropout rate of the outputs of attention and feed-forward, before the residual sum."""

    # Attention
    attention_type: Literal["scaled_dot_product", "dot_product"] = "scaled_dot_product"
    attention_module: Literal["aiayn_attention", "multiquery_attention"] = "aiayn_attention"
    extra_attention_params: ExtraAttentionParams | None = None
    attention_dropout_rate: float = Rate
    attention_softmax_fp32: bool = True
    """Whether the softmax runs in fp32 on a separate tensor of scores.

    Language models use a fused kernel instead, which sums in fp32 in any case and keeps scores as
    wide as activations. The vendor's language models also turn this off at precision_opt_level 1
    with cbfloat16 (modelzoo R2.4, models/nlp/*/model.py); its models of images do not.
    """
    use_projection_bias_in_attention: bool = True
    """Biases of query, key and value."""
    use_ffn_bias_in_attention: bool = True
    """Bias of the output projection of attention."""

    # Feed-forward
    nonlinearity: Nonlinearity = "gelu"
    use_ffn_bias: bool = True

    # Initialization
    initializer_range: NonNegativeFloat = 0.02
    """Standard deviation of the initial weights."""

    @property
    def attention_width(self) -> int:
        """Elements of all query heads together."""
        return self.attention_inner_dim or self.hidden_size

    @property
    def head_dim(self) -> int:
        """Elements of one attention head."""
        return self.attention_width // self.num_heads

    @property
    def scores(self) -> Scores:
        """How attention computes its scores."""
        is_scaled = self.attention_type == "scaled_dot_product"
        return Scores(self.head_dim**-0.5 if is_scaled else 1.0)

    @property
    def has_fp32_softmax(self) -> bool:
        """Whether attention has a separate tensor of scores, for a softmax in fp32."""
        return False

    @property
    def is_gated(self) -> bool:
        """Whether the nonlinearity of a feed-forward network is a gate."""
        return "glu" in self.nonlinearity

    @property
    def projected_memory(self) -> MemoryPlaces | None:
        """Places of memory tokens to which attention applies weights of their own; None without."""
        return None

    @property
    def experts(self) -> ExpertsConfig | None:
        """Experts of a layer; None for one feed-forward network."""
        return None

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values."""
        if self.attention_module == "aiayn_attention":
            return self.num_heads
        return (self.extra_attention_params or ExtraAttentionParams()).num_kv_groups

    @property
    def inner_dropout_rate(self) -> float:
        """Dropout rate inside of feed-forward networks."""
        return 0.0

    @property
    def layer_scale(self) -> float | None:
        """Initial value of trained factors on what a layer adds, per channel; None for none."""
        return None

    def drop_path_rate(self, layer: int) -> float:  # noqa: ARG002
        """Return the share of samples that skip a part of a layer in training."""
        return 0.0

    @property
    def drop_path_group(self) -> int:
        """Consecutive samples that skip a part of a layer together."""
        return 1

    @property
    def residual(self) -> Residual:
        """How a layer adds to the residual stream."""
        return "pre_norm"

    @property
    def shares_layer_norm(self) -> bool:
        """Whether both parts of a parallel layer share one norm."""
        return False

    @check("num_heads")
    @classmethod
    def _heads_divide_the_width(cls, num_heads: int, info: ValidationInfo) -> int:
        inner = info.data.get("attention_inner_dim")
        name = "attention_inner_dim" if inner else "hidden_size"
        width = info.data.get(name, num_heads)
        if width % num_heads:
            raise ValueError(f"num_heads must divide {name}, which is {width}")
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
                "extra_attention_params requires attention_module multiquery_attention"
            )
        num_heads = info.data.get("num_heads", extra.num_kv_groups)
        if num_heads % extra.num_kv_groups:
            raise ValueError(f"num_kv_groups must divide num_heads, which is {num_heads}")
        return extra


class LanguageConfig(TransformerConfig):
    """A transformer over a sequence of tokens: vocabulary and positions."""

    vocab_size: PositiveInt = 50257
    max_position_embeddings: PositiveInt = 1024
    share_embedding_weights: bool = True
    """Whether embedding and output projection share one matrix."""
    position_embedding_type: PositionEmbedding = "learned"
    rotary_dim: PositiveInt | None = None
    """Leading elements of each head that are rotated; all of them by default."""
    rope_theta: PositiveFloat = 10000.0

    @property
    def language_sizes(self) -> LanguageSizes | None:
        return LanguageSizes(
            hidden=self.hidden_size,
            layers=self.num_hidden_layers,
            heads=self.num_heads,
            max_length=self.max_position_embeddings,
            vocab=self.vocab_size,
            tied_embeddings=self.share_embedding_weights,
            learned_positions=self.position_embedding_type == "learned",
        )

    @property
    def rope_scaling(self) -> RopeScaling:
        """How rotary positions are scaled to long sequences."""
        return RopeScaling()

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
        width = info.data.get("attention_inner_dim") or info.data["hidden_size"]
        head_dim = width // info.data["num_heads"]
        rotated = rotary_dim or head_dim
        if rotated % 2 or rotated > head_dim:
            raise ValueError(
                f"rotary_dim must be even and at most the size of a head, which is {head_dim}"
            )
        return rotary_dim
