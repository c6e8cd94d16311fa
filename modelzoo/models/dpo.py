"""Direct preference optimization (Rafailov et al. 2023, arXiv:2305.18290).

Shapes: B pairs of a preferred (chosen) and a rejected response, T sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Discriminator, NonNegativeFloat, PositiveFloat, Tag, model_validator
from pydantic import field_validator as check
from torch import nn

from modelzoo.models.blocks.language_loss import token_losses
from modelzoo.models.gpt.config import FAMILIES, PARALLEL_FAMILIES, GptConfig, GptjConfig
from modelzoo.models.gpt.model import GptModel
from modelzoo.models.metrics import PreferenceMetrics
from waferstream.core.config import Config
from waferstream.workload.model_config import Feature, ModelConfig
from waferstream.workload.models import ModelFamily

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
    """Function of the margin between the rewards; see ``modelzoo.models.dpo``."""
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


class DpoModel(nn.Module):
    """A policy, which is trained, and a frozen reference: pairs of responses to loss.

    Both begin with the same weights. ``initialize`` fills and freezes them.
    """

    unadapted = ("ref_model",)
    """The reference stays as it is where LoRA adapts the policy."""

    def __init__(self, config: DpoConfig) -> None:
        super().__init__()
        self.config = config
        self.policy_model = GptModel(config.policy)
        self.ref_model = None if config.dpo.reference_free else GptModel(config.reference)
        self.metrics: PreferenceMetrics | None = None

    def forward(
        self,
        chosen_input_ids: torch.Tensor,
        chosen_attention_mask: torch.Tensor,
        chosen_labels: torch.Tensor,
        rejected_input_ids: torch.Tensor,
        rejected_attention_mask: torch.Tensor,
        rejected_labels: torch.Tensor,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over pairs.

        Args:
            chosen_input_ids: Tokens of prompt and response, int64 (B, T).
            chosen_attention_mask: 1 for labels of the response, int64 (B, T).
            chosen_labels: Next tokens, int64 (B, T).
            rejected_input_ids: As of the chosen response.
            rejected_attention_mask: As of the chosen response.
            rejected_labels: As of the chosen response.

        Raises:
            ConfigError: T is more than ``max_position_embeddings``.
        """
        pairs = (
            torch.stack([chosen_input_ids, rejected_input_ids], dim=1),
            torch.stack([chosen_attention_mask, rejected_attention_mask], dim=1),
            torch.stack([chosen_labels, rejected_labels], dim=1),
        )
        is_mean = self.config.dpo.loss_type == "ipo"
        reference = None
        if self.ref_model is not None:  # first, so that the policy's activations are not yet kept
            with torch.no_grad():
                reference = log_probabilities(self.ref_model, *pairs, is_mean=is_mean)
        policy = log_probabilities(self.policy_model, *pairs, is_mean=is_mean)
        if self.metrics is not None and not self.training:
            ratios = None if reference is None else policy - reference
            self.metrics(policy, None if ratios is None else self.config.dpo.beta * ratios)
        return preference_losses(self.config.dpo, policy, reference).mean()

    def initialize(self, seed: int) -> None:
        """Give both models the weights of one seed, and freeze the reference."""
        self.policy_model.initialize(seed)
        if self.ref_model is not None:
            self.ref_model.initialize(seed)
            self.ref_model.requires_grad_(False)
        if self.config.compute_eval_metrics:
            self.metrics = PreferenceMetrics(has_reference=self.ref_model is not None)


def log_probabilities(
    model: GptModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    labels: torch.Tensor,
    *,
    is_mean: bool,
) -> torch.Tensor:
    """Return the log probability of each response, or its mean over tokens, fp32 (B, 2).

    Args:
        model: The decoder.
        input_ids: Tokens, int64 (B, 2, T).
        attention_mask: 1 for labels that count, int64 (B, 2, T).
        labels: Next tokens, int64 (B, 2, T).
        is_mean: Whether the mean is returned.
    """
    scores = model.logits(input_ids.flatten(0, 1))
    losses = token_losses(scores, labels.flatten(0, 1))
    summed = (losses.view_as(labels) * attention_mask).sum(-1)
    return -summed / attention_mask.sum(-1).clamp(min=1) if is_mean else -summed


def preference_losses(
    config: PreferenceConfig, policy: torch.Tensor, reference: torch.Tensor | None
) -> torch.Tensor:
    """Return the loss of each pair (B,), of log probabilities of chosen and rejected (B, 2).

    With h the difference of the policy's log ratio and that of the reference:
        sigmoid  -log sigmoid(beta h)           Rafailov et al. 2023, equation 7
        hinge    max(0, 1 - beta h)             Zhao et al. 2023, arXiv:2305.10425, section 2.2
        ipo      (h - 1 / (2 beta))^2           Azar et al. 2023, arXiv:2310.12036, equation 17
        dpop     as sigmoid, with h less a penalty for a chosen response that becomes less probable
                                                Pal et al. 2024, arXiv:2402.13228, equation 3
    """
    margins = policy[:, 0] - policy[:, 1]
    if reference is not None:
        margins = margins - (reference[:, 0] - reference[:, 1])
    if config.loss_type == "ipo":
        return (margins - 1 / (2 * config.beta)).square()
    if config.loss_type == "hinge":
        return F.relu(1 - config.beta * margins)
    if config.loss_type == "dpop":
        assert reference is not None, "checked when the configuration was read"
        lost = (reference[:, 0] - policy[:, 0]).clamp(min=0)
        margins = margins - config.dpop_penalty_weight * lost
    return -F.logsigmoid(config.beta * margins)


DPO = ModelFamily(DpoModel, DpoConfig)
