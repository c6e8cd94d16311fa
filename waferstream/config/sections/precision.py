"""Section ``trainer.init.precision`` of params.yaml."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator

from waferstream.config.sections.section import Section

HalfType = Literal["bfloat16", "float16", "cbfloat16"]
FloatType = Literal["float32", "bfloat16", "float16", "cbfloat16"]


class PrecisionConfig(Section):
    """Section ``trainer.init.precision``: mixed precision over fp32 masters.

    ============================  =============  =============
    setting                       weights travel kernels compute
    ============================  =============  =============
    ``enabled: False``            float32        float32
    ``precision_opt_level: 0``    ``fp16_type``  float32
    ``precision_opt_level: 1``    ``fp16_type``  ``fp16_type``
    ``precision_opt_level: 2``    ``fp16_type``  ``fp16_type``
    ============================  =============  =============
    """

    enabled: bool = True
    fp16_type: HalfType = "bfloat16"
    precision_opt_level: Literal[0, 1, 2] = 1
    stochastic_rounding: bool = False
    """Round results to ``fp16_type`` by chance in training, so that their mean is exact."""
    loss_scaling_factor: PositiveFloat | Literal["dynamic"] = 1.0
    """Factor on the loss before the backward pass; gradients are divided by it afterwards.

    ``dynamic`` follows the gradients (``waferstream.core.optimizer``); the next four
    keys are for it, and null is the default of ``cstorch.amp.GradScaler``.
    """
    initial_loss_scale: PositiveFloat | None = None
    steps_per_increase: PositiveInt = 2000
    min_loss_scale: PositiveFloat | None = None
    max_loss_scale: PositiveFloat | None = None
    max_gradient_norm: PositiveFloat | None = None
    """Largest global L2 norm of the gradients."""
    max_gradient_value: PositiveFloat | None = None
    """Largest absolute value of a gradient element."""
    log_loss_scale: bool | None = None
    """Write a dynamic loss scale to the events; null is yes."""

    @model_validator(mode="after")
    def _needs_scale(self) -> Self:
        if self.enabled and self.fp16_type == "cbfloat16" and self.loss_scaling_factor == 1.0:
            raise ValueError(
                "gradients may leave the range of cbfloat16; give loss_scaling_factor: dynamic"
            )
        return self

    @model_validator(mode="after")
    def _rounds_a_half_type(self) -> Self:
        if self.stochastic_rounding and not self.enabled:
            raise ValueError("stochastic_rounding needs a half type; give enabled: True")
        return self

    @property
    def scales_dynamically(self) -> bool:
        """Whether the loss scale is dynamic; bfloat16 and fp32 have the range of fp32 anyway."""
        has_range = not self.enabled or self.fp16_type == "bfloat16"
        return self.loss_scaling_factor == "dynamic" and not has_range

    @property
    def stream_dtype(self) -> FloatType:
        """Dtype of weights on the stream."""
        return self.fp16_type if self.enabled else "float32"

    @property
    def compute_dtype(self) -> FloatType:
        """Dtype of the kernels."""
        return self.fp16_type if self.enabled and self.precision_opt_level > 0 else "float32"
