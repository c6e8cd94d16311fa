"""Configuration of the decoder-only families (Model Zoo 2.10, ``models/nlp/gpt2``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
)
from pydantic import field_validator as check

from modelzoo.models.blocks.initializers import InitializerKey, NormalInitializer, WeightInitializer
from modelzoo.models.blocks.language_loss import LanguageLossConfig
from modelzoo.models.blocks.rotary import RopeScaling, rope_scaling
from modelzoo.models.blocks.transformer_config import (
    ExpertsConfig,
    NormType,
    Residual,
    Scores,
)
from modelzoo.models.gpt.sparse_attention import SparseAttentionConfig
from modelzoo.models.mup import widened
from waferstream.core.config import before
from waferstream.workload.model_config import Feature

FAMILIES = (
    "gpt2", "gpt3", "llama", "mistral", "mixtral", "gemma2", "bloom", "btlm", "jais",
    "santacoder", "starcoder",
)  # fmt: skip
"""Names of the same class with other values."""

PARALLEL_FAMILIES = ("gptj", "gpt-neox", "falcon")
"""Names whose layers are parallel."""

_ROPE_FIELDS = {
    "hidden_size", "num_heads", "rotary_dim", "rope_theta", "position_embedding_type",
    "max_position_embeddings", "pos_scaling_type", "pos_scaling_factor",
}  # fmt: skip


class DecoderConfig(SparseAttentionConfig):
    """Layers of which each token reads the earlier ones, with a head for the next tokens."""

    is_causal: ClassVar[bool] = True

    # Embedding and positions
    embedding_layer_norm: bool = False
    num_relative_attention_buckets: Annotated[int, Field(ge=2)] = 32
    alibi_trainable_slopes: bool = False
    pos_scaling_factor: PositiveFloat = 1.0
    """Factor of the longest sequence, for rotary and alibi."""
    pos_scaling_type: Literal["linear", "yarn", "YaRN", "llama3", "longrope"] = "linear"
    pos_scaling_extra_args: Annotated[
        dict[str, Any],
        before(lambda value: value or {}, dict[str, Any] | None),
    ] = Field(default_factory=dict, validate_default=True)
    """Arguments of the scaling (modelzoo.models.blocks.rotary)."""
    fold_rope_consts: bool = False
    """Accepted for compatibility: where angles are computed on the real machine."""

    # Layers
    norm_first_sandwich: bool = False
    """Whether outputs of attention and feed-forward are normalized, too."""
    attention_kernel: str | None = None
    """Accepted for compatibility: a kernel of the real machine."""
    use_experimental_flex_api: bool = False
    """Accepted for compatibility: how the real machine's compiler is told of masks."""
    attention_logit_softcapping: PositiveFloat | None = None
    attention_qk_norm_layer: NormType | None = None
    attention_qk_norm_eps: PositiveFloat = 1e-5
    use_sink_token: bool = False
    """Whether each head has a trained score that competes with those of the keys (gpt-oss)."""
    scale_qk_dot_by_layer_idx: bool = False
    """Whether scores are also divided by the number of the layer, from 1."""
    moe: ExpertsConfig = ExpertsConfig()

    # Head
    use_bias_in_output: bool = False
    output_logits_scale: PositiveFloat | None = None
    final_logit_softcapping: PositiveFloat | None = None

    # Initialization
    initializer: InitializerKey = None
    """Of query, key, value and the first projections of feed-forward networks."""
    embedding_initializer: InitializerKey = None
    output_layer_initializer: InitializerKey = None
    """Of the last projection of attention."""
    ffn_initializer: InitializerKey = None
    ffn_output_layer_initializer: InitializerKey = None

    @property
    def residual(self) -> Residual:
        return "sandwich" if self.norm_first_sandwich else "pre_norm"

    @property
    def experts(self) -> ExpertsConfig | None:
        return self.moe if self.moe.num_experts > 1 else None

    @property
    def scores(self) -> Scores:
        return replace(
            super().scores,
            cap=self.attention_logit_softcapping,
            norm_type=self.attention_qk_norm_layer,
            norm_epsilon=self.attention_qk_norm_eps,
            has_sinks=self.use_sink_token,
        )

    @property
    def rope_scaling(self) -> RopeScaling:
        return rope_scaling(
            self.pos_scaling_type,
            self.pos_scaling_factor,
            self.pos_scaling_extra_args,
            dim=self.rotated_dim,
            theta=self.rope_theta,
            max_position_embeddings=self.longest_sequence,
        )

    @check("pos_scaling_extra_args")
    @classmethod
    def _scaling_takes_its_arguments(
        cls, extra: dict[str, Any], info: ValidationInfo
    ) -> dict[str, Any]:
        known = info.data
        if _ROPE_FIELDS - known.keys():
            return extra
        if known["position_embedding_type"] != "rotary":
            if extra or known["pos_scaling_type"] != "linear":
                raise ValueError("only rotary positions have this scaling")
            return extra
        width = known.get("attention_inner_dim") or known["hidden_size"]
        rope_scaling(
            known["pos_scaling_type"],
            known["pos_scaling_factor"],
            extra,
            dim=known["rotary_dim"] or width // known["num_heads"],
            theta=known["rope_theta"],
            max_position_embeddings=known["max_position_embeddings"],
        )
        return extra

    @check("moe")
    @classmethod
    def _experts_read_no_memory(cls, moe: ExpertsConfig, info: ValidationInfo) -> ExpertsConfig:
        memory = info.data.get("memory_tokens")
        if moe.num_experts > 1 and memory is not None and memory.places is not None:
            raise ValueError("memory_tokens exclude experts")
        return moe

    @check("output_logits_scale")
    @classmethod
    def _scale_follows_from_mup(cls, scale: float | None, info: ValidationInfo) -> float | None:
        if scale is not None and info.data.get("mup_base_filter_size") is not None:
            raise ValueError("output_logits_scale follows from muP: give output_logits_alpha")
        return scale

    @check(
        "initializer", "output_layer_initializer", "ffn_initializer", "ffn_output_layer_initializer"
    )
    @classmethod
    def _mup_can_scale(
        cls, initializer: WeightInitializer | None, info: ValidationInfo
    ) -> WeightInitializer | None:
        if initializer is not None and info.data.get("mup_base_filter_size") is not None:
            widened(initializer, 1.0)
        return initializer

    @property
    def logits_scale(self) -> float | None:
        return self.output_logits_scale if self.width_ratios is None else super().logits_scale

    def initializers(self) -> tuple[WeightInitializer, dict[str, WeightInitializer]]:
        """Return the initializer of all weights, and others by the end of their name.

        Weights that write to the residual stream start smaller by 1 / sqrt(2 L) by default, L
        layers adding two terms each (Radford et al. 2019, GPT-2, section 2.3).
        """
        plain = NormalInitializer(std=self.initializer_range)
        first: WeightInitializer = self.initializer or plain
        last: WeightInitializer | None = self.output_layer_initializer
        if last is None:
            last = self.initializer or plain.scaled((2 * self.num_hidden_layers) ** -0.5)
        inner: WeightInitializer = self.ffn_initializer or first
        down: WeightInitializer = self.ffn_output_layer_initializer or last
        if self.width_ratios is not None:
            depth = (2 * self.num_hidden_layers) ** -0.5
            hidden, filters = (ratio**-0.5 for ratio in self.width_ratios)
            default = self.initializer or plain
            last = widened(self.output_layer_initializer or default, hidden * depth)
            down = widened(self.ffn_output_layer_initializer or default, filters * depth)
            first, inner = widened(first, hidden), widened(inner, hidden)
        return first, {
            "embedding.weight": self.embedding_initializer or plain,
            "position.weight": self.embedding_initializer or plain,
            "relative.table.weight": self.embedding_initializer or plain,
            "head.weight": plain,
            "attention.output.weight": last,
            "attention.output.memory.weight": last,
            "memory_embedding.weight": self.embedding_initializer or plain,
            "up.weight": inner,
            "gate.weight": inner,
            "down.weight": down,
            "router.weight": self.initializer or self.moe.gate_initializer or plain,
        }


class GptConfig(LanguageLossConfig, DecoderConfig):
    """A decoder-only transformer."""

    name: str = "gpt2"
    compute_eval_metrics: bool = True
    """Whether an evaluation computes accuracy and perplexity of the tokens that count."""
    boundary_casting: Literal[False] = False

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        shape = (sequence_length or self.max_position_embeddings,)
        return (
            Feature("input_ids", shape, self.vocab_size),
            Feature("attention_mask", shape, 2),
            Feature("labels", shape, self.vocab_size),
        )


class GptjConfig(GptConfig):
    """GPT-J, GPT-NeoX and Falcon: parallel layers."""

    name: str = "gptj"
    position_embedding_type: Literal["learned", "rotary"] = "rotary"
    rotary_dim: PositiveInt | None = 64
    share_embedding_weights: bool = False
    use_projection_bias_in_attention: bool = False
    use_ffn_bias_in_attention: bool = False
    use_bias_in_output: bool = True
    norm_first_sandwich: Literal[False] = False
    dropout_rate: float = Field(default=0.1, ge=0, lt=1, alias="residual_dropout_rate")
    use_untied_layer_norm: bool = False
    """Separate norms for attention and feed-forward, as in GPT-NeoX; GPT-J shares one norm."""

    @property
    def residual(self) -> Residual:
        return "parallel"

    @property
    def shares_layer_norm(self) -> bool:
        return not self.use_untied_layer_norm
