"""Configuration of direct preference optimization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    NonNegativeFloat,
    PositiveFloat,
    Tag,
    model_validator,
)
from pydantic import field_validator as check

from modelzoo.models.gpt.config import FAMILIES, PARALLEL_FAMILIES, GptConfig, GptjConfig
from modelzoo.models.model_config import Feature, ModelConfig
from waferstream.core.config import Config

SIDES = ("chosen", "rejected")
"""The responses of a pair."""

_RATES = ("dropout_rate", "embedding_dropout_rate", "attention_dropout_rate")


def _class_of(section: Any) -> str:
    """Return the name of a decoder's configuration class, from its section or configuration."""
    is_section = isinstance(section, Mapping)
    name = section.get("name") if is_section else getattr(section, "name", None)
    return (GptjConfig if name in PARALLEL_FAMILIES else GptConfig).__name__


Decoder = Annotated[
    Annotated[GptConfig, Tag("GptConfig")] | Annotated[GptjConfig, Tag("GptjConfig")],
    Discriminator(_class_of),
]
"""A decoder-only transformer, by its name."""


class PreferenceConfig(Config):
    """Section ``dpo``: the loss of a pair of responses."""

    beta: PositiveFloat = 0.1
    """Factor on log ratios of the policy to the reference, which are rewards (Rafailov et al. 2023,
    arXiv:2305.18290, equation 5)."""
    reference_free: bool = False
    """Whether the reference gives all responses the same probability, so that there is no model."""
    loss_type: Literal["sigmoid", "hinge", "ipo", "dpop"] = "sigmoid"
    """Function of the margin between the rewards; see ``modelzoo.models.dpo.model``."""
    disable_dropout: bool = True
    """Whether the policy has no dropout; the reference never has."""
    dpop_penalty_weight: NonNegativeFloat = 5.0
    """Factor on the penalty of ``dpop`` (Pal et al. 2024, arXiv:2402.13228, equation 3)."""

    @model_validator(mode="after")
    def _penalty_needs_a_reference(self) -> Self:
        if self.loss_type == "dpop" and self.reference_free:
            raise ValueError("loss_type dpop requires reference_free false")
        return self


class DpoConfig(ModelConfig):
    """A policy that learns which of two responses is preferred (Rafailov et al. 2023, DPO)."""

    name: str = "dpo"
    policy_model: Decoder
    """Section of a decoder; the reference has the same one."""
    dpo: PreferenceConfig
    compute_eval_metrics: bool = True
    """Whether an evaluation computes rewards and log probabilities."""

    @property
    def policy(self) -> GptConfig:
        """The decoder that is trained; it computes no metrics of its own."""
        policy = self.reference if self.dpo.disable_dropout else self.policy_model
        return policy.model_copy(update={"compute_eval_metrics": False})

    @property
    def reference(self) -> GptConfig:
        """The decoder without dropout and metrics."""
        changes = {**dict.fromkeys(_RATES, 0.0), "compute_eval_metrics": False}
        return self.policy_model.model_copy(update=changes)

    @property
    def learning_rate_scales(self) -> dict[str, float]:
        return self.policy_model.learning_rate_scales

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        inputs = self.policy_model.features(sequence_length)
        return tuple(
            Feature(f"{side}_{each.name}", each.shape, each.below)
            for side in SIDES
            for each in inputs
        )

    @check("policy_model")
    @classmethod
    def _is_a_decoder(cls, policy: GptConfig) -> GptConfig:
        names = (*FAMILIES, *PARALLEL_FAMILIES)
        if "name" not in policy.model_fields_set or policy.name not in names:
            raise ValueError(f"its name must be one of {', '.join(names)}")
        if policy.moe.load_balancing_loss_coef:
            raise ValueError(
                "moe.load_balancing_loss_coef must be 0: preferences have no such loss"
            )
        return policy
