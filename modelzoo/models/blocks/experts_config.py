"""Keys of experts and their router (modelzoo.models.blocks.experts)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.blocks.initializers import InitializerKey
from waferstream.core.config import Config, before

NoneIsZero = Annotated[NonNegativeInt, before(lambda v: v or 0, NonNegativeInt | None)]
"""A number for which null stands for 0."""


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
    routing_algorithm: Literal["learned"] = "learned"
    router_selection_nonlinearity: Literal["softmax", "sigmoid"] = "softmax"
    expert_weighting_nonlinearity: Literal["softmax", "sigmoid"] = "softmax"
    expert_weighting_normalization: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
    gate_initializer: InitializerKey = None
    """Of the router."""
    probability_before_ffn: Literal[False] = False

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
