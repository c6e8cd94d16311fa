"""The model keys of params.yaml for the GPT family (cluster_interface.md, section 2.4)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.feature import Feature
from modelzoo.models.language_config import LanguageConfig
from modelzoo.models.transformer_config import Residual


class GptConfig(LanguageConfig):
    """A decoder-only transformer."""

    is_causal: ClassVar[bool] = True

    name: str = "gpt2"

    # Head and loss
    use_bias_in_output: bool = False
    loss_scaling: Literal["num_tokens", "batch_size"] = "num_tokens"
    """What the summed loss of a micro-batch is divided by."""
    loss_weight: PositiveFloat = 1.0
    """Factor on the loss; for ``batch_size`` mostly 1 / max_sequence_length."""
    compute_eval_metrics: bool = True
    """Perplexity follows from the loss; the model itself computes no more than that."""
    boundary_casting: Literal[False] = False

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        shape = (sequence_length or self.max_position_embeddings,)
        return (
            Feature("input_ids", shape, self.vocab_size),
            Feature("attention_mask", shape, 2),
            Feature("labels", shape, self.vocab_size),
        )

    @check("loss_weight")
    @classmethod
    def _weight_goes_with_batch_size(cls, loss_weight: float, info: ValidationInfo) -> float:
        if loss_weight != 1.0 and info.data.get("loss_scaling") == "num_tokens":
            raise ValueError("loss_weight goes with loss_scaling batch_size")
        return loss_weight


class GptjConfig(GptConfig):
    """GPT-J and GPT-NeoX: attention and feed-forward read the same residual stream."""

    name: str = "gptj"
    position_embedding_type: Literal["learned", "rotary"] = "rotary"
    rotary_dim: PositiveInt | None = 64
    share_embedding_weights: bool = False
    use_projection_bias_in_attention: bool = False
    use_ffn_bias_in_attention: bool = False
    use_bias_in_output: bool = True
    dropout_rate: float = Field(default=0.1, ge=0, lt=1, alias="residual_dropout_rate")
    use_untied_layer_norm: bool = False
    """Normalize for attention and feed-forward apart, as in GPT-NeoX; GPT-J shares one norm."""

    @property
    def residual(self) -> Residual:
        return "parallel"

    @property
    def shares_layer_norm(self) -> bool:
        return not self.use_untied_layer_norm
