"""Maximal update parametrization (muP) of language models: initial weights, scores, learning rates.

Hyper-parameters tuned on a model of ``mup_base_hidden_size`` hold for a wider one: Yang et al.
2022, "Tensor Programs V", arXiv:2203.03466, table 8 (Adam), as applied by Dey et al. 2023,
"Cerebras-GPT", arXiv:2304.03208, appendix G. With m the ratio of widths, of a weight's inputs:
    initial weights     standard deviation times m^-1/2 (hidden weights)
    learning rate       times 1 / m (hidden weights)
    scores of the head  times output_logits_alpha / m
    scores of attention divided by the size of a head (scale_qk_dot_by_d)
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.blocks.initializers import (
    NormalInitializer,
    TruncatedNormalInitializer,
    WeightInitializer,
)
from modelzoo.models.blocks.transformer_config import LanguageConfig, Scores
from waferstream.core.config import Config, before


class LearningRateGroup(Config):
    """Entry of ``lr_adjustment_groups``."""

    param_filter_patterns: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        before(lambda v: (v,) if isinstance(v, str) else v, str | tuple[str, ...]),
    ]
    """Globs of names of parameters, here or at the vendor."""
    scale: Annotated[NonNegativeFloat, before(lambda v: 1.0 if v is None else v, float | None)] = (
        1.0
    )
    """Factor on the learning rate of these parameters."""


class MupConfig(LanguageConfig):
    """A language model whose hyper-parameters may be those of a narrower one."""

    lr_adjustment_groups: dict[str, LearningRateGroup] | None = None
    """Groups that ``adjust_learning_rate`` of the optimizer names, in place of the usual ones."""

    mup_base_hidden_size: PositiveFloat | None = None
    mup_base_filter_size: Annotated[PositiveFloat | None, Field(validate_default=True)] = None
    embeddings_scale: PositiveFloat = 1.0
    """Factor on the embedded tokens."""
    scale_qk_dot_by_d: bool | None = None
    """Whether scores are divided by the size of a head instead of its root."""
    attention_logits_alpha: PositiveFloat = 1.0
    """Factor on the scores of attention."""
    output_logits_alpha: PositiveFloat | None = None
    """Factor on the scores of a muP model, besides that of its width."""
    scale_output_logits_by_d: bool = True
    """Whether the factor of the width is the ratio of widths, or its root."""

    @check("mup_base_filter_size")
    @classmethod
    def _both_widths_are_scaled(cls, base: float | None, info: ValidationInfo) -> float | None:
        if (base is None) != (info.data.get("mup_base_hidden_size") is None):
            raise ValueError("muP needs mup_base_hidden_size and mup_base_filter_size")
        groups, scaled = info.data.get("lr_adjustment_groups"), cls._scaled_groups()
        if base is not None and groups is not None and not groups.keys() >= {*scaled}:
            raise ValueError(f"muP needs the groups {', '.join(scaled)} in lr_adjustment_groups")
        return base

    @classmethod
    def _scaled_groups(cls) -> list[str]:
        """Return the groups whose learning rates depend on widths."""
        stack = "decoder" if cls.is_causal else "encoder"
        return [f"{stack}_{part}" for part in ("attention", "input_ffn", "output_ffn")]

    @property
    def scores(self) -> Scores:
        by_size = self.scale_qk_dot_by_d
        if by_size is None:
            by_size = self.mup_base_hidden_size is not None
        scaled = by_size and self.attention_type == "scaled_dot_product"
        plain = 1 / self.head_dim if scaled else super().scores.scale
        return Scores(plain * self.attention_logits_alpha)

    @property
    def width_ratios(self) -> tuple[float, float] | None:
        """How much wider than the base of muP layers and their filters are; None without muP."""
        if self.mup_base_hidden_size is None or self.mup_base_filter_size is None:
            return None
        hidden = self.hidden_size / self.mup_base_hidden_size
        return hidden, self.filter_size / self.mup_base_filter_size

    @property
    def learning_rate_scales(self) -> dict[str, float]:
        own = {name: group.scale for name, group in (self.lr_adjustment_groups or {}).items()}
        if self.width_ratios is None:
            return own
        hidden, filters = (1 / ratio for ratio in self.width_ratios)
        scaled = zip(self._scaled_groups(), (hidden, hidden, filters), strict=True)
        return own | dict(scaled)

    @property
    def learning_rate_groups(self) -> dict[str, tuple[str, ...]] | None:
        if self.lr_adjustment_groups is None:
            return None
        groups = self.lr_adjustment_groups.items()
        return {name: group.param_filter_patterns for name, group in groups}

    @property
    def logits_scale(self) -> float | None:
        """Factor on the scores of the head; None for 1."""
        if self.width_ratios is None:
            return None
        ratio = self.width_ratios[0]
        by_width = ratio if self.scale_output_logits_by_d else ratio**0.5
        return (self.output_logits_alpha or 1.0) / by_width


def widened(initializer: WeightInitializer, factor: float) -> WeightInitializer:
    """Return an initializer whose values are ``factor`` times as large.

    Raises:
        ValueError: It is of a kind that muP does not scale.
    """
    if isinstance(initializer, NormalInitializer | TruncatedNormalInitializer):
        return initializer.scaled(factor)
    raise ValueError("muP scales the initializers normal and truncated_normal only")
