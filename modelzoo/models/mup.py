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

from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field, PositiveFloat, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.blocks.initializers import (
    NormalInitializer,
    TruncatedNormalInitializer,
    WeightInitializer,
)
from modelzoo.models.blocks.transformer_config import LanguageConfig, Scores
from waferstream.core.errors import ConfigError, did_you_mean


class MupConfig(LanguageConfig):
    """A language model whose hyper-parameters may be those of a narrower one."""

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
        return base

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
        if self.width_ratios is None:
            return {}
        hidden, filters = (1 / ratio for ratio in self.width_ratios)
        stack = "decoder" if self.is_causal else "encoder"
        return {
            f"{stack}_attention": hidden,
            f"{stack}_input_ffn": hidden,
            f"{stack}_output_ffn": filters,
        }

    @property
    def logits_scale(self) -> float | None:
        """Factor on the scores of the head; None for 1."""
        if self.width_ratios is None:
            return None
        ratio = self.width_ratios[0]
        by_width = ratio if self.scale_output_logits_by_d else ratio**0.5
        return (self.output_logits_alpha or 1.0) / by_width


_ATTENTION = tuple(f"attention.{part}.weight" for part in ("query", "key", "value", "output"))
_INPUT = ("feed_forward.up.weight", "feed_forward.gate.weight")
_OUTPUT = ("feed_forward.down.weight",)
_EMBEDDING = (
    "embedding.weight", "token.weight", "segment.weight", "position.weight", "table.weight",
)  # fmt: skip

LEARNING_RATE_GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "embedding": ("", _EMBEDDING),
    "pooler": ("", ("pooler.weight",)),
    "lm_head": ("", ("head.weight",)),
    **{
        f"{stack}_{part}": (f"{stack}.", ends)
        for stack in ("decoder", "encoder")
        for part, ends in (
            ("kernel", (*_ATTENTION, *_INPUT, *_OUTPUT)),
            ("attention", _ATTENTION),
            ("qkv_projection", _ATTENTION[:3]),
            ("output_projection", _ATTENTION[3:]),
            ("input_ffn", _INPUT),
            ("output_ffn", _OUTPUT),
        )
    },
}
"""The stack and the ends of the names of the weights of each group with its own learning rate."""


def _members(group: str, names: Collection[str]) -> list[str]:
    """Return the parameters of a group; the stack may lie in a part of the model."""
    stack, ends = LEARNING_RATE_GROUPS[group]
    return [name for name in names if f".{stack}" in f".{name}" and name.endswith(ends)]


def widened(initializer: WeightInitializer, factor: float) -> WeightInitializer:
    """Return an initializer whose values are ``factor`` times as large.

    Raises:
        ValueError: It is of a kind that muP does not scale.
    """
    if isinstance(initializer, NormalInitializer | TruncatedNormalInitializer):
        return initializer.scaled(factor)
    raise ValueError("muP scales the initializers normal and truncated_normal only")


def learning_rate_factors(
    names: Collection[str],
    scales: Mapping[str, float],
    adjusted: Mapping[str, float],
    where: str,
) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter that has one.

    Args:
        names: The parameters of the model.
        scales: Factors by group, of the model.
        adjusted: Factors by group, of the user: they replace those of the model.
        where: The key path of the latter, for errors.

    Raises:
        ConfigError: There is no such group, or two groups give one parameter different factors.
    """
    known = [group for group in LEARNING_RATE_GROUPS if _members(group, names)]
    for group in adjusted:
        if group not in known:
            raise ConfigError(
                "adjust_learning_rate must name groups of parameters",
                code="unknown-group",
                where=where,
                value=group,
                rule=f"one of {', '.join(known)}",
                remedy=did_you_mean(group, known),
            )
    found: dict[str, float] = {}
    for group, factor in {**scales, **adjusted}.items():
        for name in _members(group, names):
            if found.setdefault(name, factor) != factor:
                raise ConfigError(
                    "two groups must not give a parameter different learning rates",
                    code="learning-rates-differ",
                    where=where,
                    value=f"{name}: {found[name]} and {factor}",
                    remedy="give the groups decoder_attention, decoder_input_ffn and "
                    "decoder_output_ffn instead of decoder_kernel",
                )
    return {name: factor for name, factor in found.items() if factor != 1.0}
