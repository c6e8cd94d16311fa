"""Configuration of encoder-decoder transformers (Model Zoo 2.10)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from modelzoo.models.blocks.transformer_config import (
    NormType,
    Rate,
    Residual,
    Scores,
    TransformerConfig,
)
from waferstream.workload.model_config import Feature, ModelConfig

Activation = Literal["relu", "gelu", "reglu", "geglu", "geglu_new", "swiglu"]


class StackConfig(TransformerConfig):
    """The layers of an encoder or a decoder."""

    name: str = "stack"
    norm_first: bool
    relu_dropout_rate: float
    score_scale: float
    """Factor on the scores of attention."""

    @property
    def scores(self) -> Scores:
        return Scores(self.score_scale)

    @property
    def residual(self) -> Residual:
        return "pre_norm" if self.norm_first else "post_norm"

    @property
    def inner_dropout_rate(self) -> float:
        return self.relu_dropout_rate

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        return ()  # it reads activations, no data


class EncoderDecoderConfig(ModelConfig):
    """An encoder of one sequence, and a decoder of another (Raffel et al. 2020, T5)."""

    name: str = "t5"

    # Vocabularies
    src_vocab_size: PositiveInt = 32128
    tgt_vocab_size: PositiveInt | None = None
    """By default that of the source."""
    extra_ids: NonNegativeInt = 0
    """Tokens of both vocabularies besides, which stand for spans that are left out."""
    share_encoder_decoder_embedding: bool = True
    """Whether both sequences are embedded by the same vectors."""
    share_embedding_weights: bool = True
    """Whether the embedding of the target and the head share one matrix."""

    # Sizes
    d_model: PositiveInt = 512
    """Elements of the residual stream."""
    d_kv: PositiveInt = 64
    """Elements of an attention head."""
    d_ff: PositiveInt = 2048
    """Elements inside of a feed-forward network."""
    num_heads: PositiveInt = 8
    encoder_num_hidden_layers: PositiveInt = 6
    decoder_num_hidden_layers: PositiveInt | None = None
    """By default those of the encoder."""

    # Positions
    position_embedding_type: Literal["relative", "fixed"] = "relative"
    """``relative`` is a bias of each stack on the scores of its attention."""
    relative_attention_num_buckets: PositiveInt = 32
    """Distances that have a bias of their own, or share one."""
    src_max_position_embeddings: PositiveInt = 512
    """Tokens of a source, at most."""
    tgt_max_position_embeddings: PositiveInt = 512
    """Tokens of a target, at most."""

    # Norm and dropout
    norm_type: NormType = "rmsnorm"
    layer_norm_epsilon: PositiveFloat = 1e-5
    use_pre_encoder_decoder_layer_norm: bool = True
    """Whether layers are pre-norm instead of post-norm; a norm follows the last one in any case."""
    dropout_rate: float = Rate
    """Of both inputs, the shares of attention, and the outputs of all parts of a layer."""
    relu_dropout_rate: float | None = Field(default=None, ge=0, lt=1)
    """Dropout rate inside of feed-forward networks; by default ``dropout_rate``."""
    use_dropout_outside_residual_path: bool = True
    """Whether the outputs of encoder and decoder have dropout, too."""
    use_pre_encoder_decoder_dropout: bool = False
    """Whether both inputs have dropout twice."""

    # Layers
    encoder_nonlinearity: Activation = "relu"
    decoder_nonlinearity: Activation | None = None
    """By default that of the encoder."""
    use_projection_bias_in_attention: bool = False
    """Biases of query, key and value; the output of attention has none."""
    use_ffn_bias: bool = False
    attention_softmax_fp32: bool = True
    """No effect: the fused kernel sums in fp32 in any case."""

    # Initialization
    use_transformer_initialization: bool = False
    """Initialize, and scale scores of attention, as Vaswani et al. 2017 instead of T5."""

    # muP (modelzoo.models.mup)
    mup_base_d_model: PositiveFloat | None = None
    mup_base_d_ff: PositiveFloat | None = None
    embeddings_alpha: PositiveFloat = 1.0
    """Factor on the embedded tokens; of a muP model besides the root of ``d_model``."""
    scale_encoder_qk_dot_by_d: bool | None = None
    """Whether scores are divided by ``d_kv`` instead of its root; by default with muP."""
    scale_decoder_qk_dot_by_d: bool | None = None
    """Whether scores are divided by ``d_kv`` instead of its root; by default with muP."""
    encoder_attention_logits_alpha: PositiveFloat = 1.0
    """Factor on the scores of attention."""
    decoder_attention_logits_alpha: PositiveFloat = 1.0
    """Factor on the scores of attention."""
    output_logits_alpha: PositiveFloat | None = None
    """Factor on the scores of the head of a muP model, besides that of its width."""
    scale_output_logits_by_d: bool = False
    """Whether the factor of the width is the ratio of widths, or its root."""

    # Loss
    mlm_loss_scaling: Literal["batch_size", "precomputed_num_masked"] = "batch_size"
    """Both are the same for batches without weights of their own."""
    lm_loss_weight: PositiveFloat = 1.0
    """Factor on the sum of the tokens' losses per sample; usually 1 / their number."""
    compute_eval_metrics: bool = True
    """Whether an evaluation computes accuracy and perplexity."""

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Tokens of the source and of the target."""
        target = self.tgt_vocab_size or self.src_vocab_size
        return self.src_vocab_size + self.extra_ids, target + self.extra_ids

    @property
    def width_ratios(self) -> tuple[float, float] | None:
        """How much wider than the base of muP layers and their filters are; None without muP."""
        if self.mup_base_d_model is None or self.mup_base_d_ff is None:
            return None
        return self.d_model / self.mup_base_d_model, self.d_ff / self.mup_base_d_ff

    @property
    def embeddings_scale(self) -> float:
        """Factor on the embedded tokens."""
        return self.embeddings_alpha * (self.d_model**0.5 if self.width_ratios else 1.0)

    @property
    def output_scale(self) -> float:
        """Factor on what the head reads."""
        if self.width_ratios is None:
            return self.d_model**-0.5 if self.share_embedding_weights else 1.0
        ratio = self.width_ratios[0]
        by_width = ratio if self.scale_output_logits_by_d else ratio**0.5
        return (self.output_logits_alpha or 1.0) / by_width

    @property
    def learning_rate_scales(self) -> dict[str, float]:
        if self.width_ratios is None:
            return {}
        width, filters = (1 / ratio for ratio in self.width_ratios)
        stacks = {
            f"{stack}_{part}": scale
            for stack in ("encoder", "decoder")
            for part, scale in (
                ("qkv_projection", width**0.5),
                ("output_projection", width**0.5),
                ("input_ffn", width),
                ("output_ffn", filters),
            )
        }
        return {"embedding": width**0.5, "lm_head": width**0.5, **stacks}

    def _score_scale(self, by_size: bool | None) -> float:
        """Return the factor on scores; with muP also those of query and key at the vendor."""
        if self.width_ratios is not None:
            plain = 1 / self.d_kv if by_size in (None, True) else self.d_kv**-0.5
            return plain / self.width_ratios[0]
        if not self.use_transformer_initialization:
            return 1.0
        return 1 / self.d_kv if by_size else self.d_kv**-0.5

    @property
    def encoder(self) -> StackConfig:
        """The layers of the encoder."""
        return self._stack(
            self.encoder_num_hidden_layers,
            self.encoder_nonlinearity,
            self.scale_encoder_qk_dot_by_d,
            self.encoder_attention_logits_alpha,
        )

    @property
    def decoder(self) -> StackConfig:
        """The layers of the decoder."""
        return self._stack(
            self.decoder_num_hidden_layers or self.encoder_num_hidden_layers,
            self.decoder_nonlinearity or self.encoder_nonlinearity,
            self.scale_decoder_qk_dot_by_d,
            self.decoder_attention_logits_alpha,
        )

    def _stack(
        self, num_layers: int, nonlinearity: Activation, by_size: bool | None, alpha: float
    ) -> StackConfig:
        inner = self.relu_dropout_rate
        return StackConfig(
            hidden_size=self.d_model,
            num_hidden_layers=num_layers,
            attention_inner_dim=self.d_kv * self.num_heads,
            num_heads=self.num_heads,
            filter_size=self.d_ff,
            norm_type=self.norm_type,
            norm_first=self.use_pre_encoder_decoder_layer_norm,
            layer_norm_epsilon=self.layer_norm_epsilon,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.dropout_rate,
            relu_dropout_rate=self.dropout_rate if inner is None else inner,
            score_scale=self._score_scale(by_size) * alpha,
            use_projection_bias_in_attention=self.use_projection_bias_in_attention,
            use_ffn_bias_in_attention=False,
            nonlinearity=nonlinearity,
            use_ffn_bias=self.use_ffn_bias,
        )

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        source = (sequence_length or self.src_max_position_embeddings,)
        target = (self.tgt_max_position_embeddings,)
        source_size, target_size = self.vocab_sizes
        return (
            Feature("input_ids", source, source_size),
            Feature("attention_mask", source, 2),
            Feature("decoder_input_ids", target, target_size),
            Feature("decoder_attention_mask", target, 2),
            Feature("labels", target, target_size),
        )

    @model_validator(mode="after")
    def _shared_vectors_have_one_vocabulary(self) -> Self:
        source, target = self.vocab_sizes
        if self.share_encoder_decoder_embedding and source != target:
            raise ValueError(
                "share_encoder_decoder_embedding requires src_vocab_size and tgt_vocab_size "
                "to be equal"
            )
        return self

    @model_validator(mode="after")
    def _both_widths_are_scaled(self) -> Self:
        if (self.mup_base_d_model is None) != (self.mup_base_d_ff is None):
            raise ValueError("muP needs mup_base_d_model and mup_base_d_ff")
        if self.width_ratios is not None and self.use_transformer_initialization:
            raise ValueError("muP is for use_transformer_initialization: false")
        return self

    @model_validator(mode="after")
    def _gelu_has_no_bias(self) -> Self:
        if self.use_ffn_bias and "gelu" in (self.encoder_nonlinearity, self.decoder_nonlinearity):
            raise ValueError("use_ffn_bias must be false with gelu, as at the vendor")
        return self
