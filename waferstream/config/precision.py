"""``trainer.init.precision``: in which types weights travel and kernels compute."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PositiveFloat

from waferstream.config.section import NotYet, Section, not_yet

HalfType = Literal["bfloat16", "float16"]
FloatType = Literal["float32", "bfloat16", "float16"]


class PrecisionConfig(Section):
    """Mixed precision over fp32 masters (cluster_interface.md, sections 2.2 and 3.7).

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
    fp16_type: Annotated[
        HalfType, not_yet("cbfloat16", remedy="bfloat16 has the same size and needs no loss scale")
    ] = "bfloat16"
    precision_opt_level: Literal[0, 1, 2] = 1
    loss_scaling_factor: Annotated[
        PositiveFloat, not_yet("dynamic", remedy="give a number; bfloat16 needs no other than 1.0")
    ] = 1.0
    """The loss is multiplied by this before the backward pass, the gradients divided after it."""
    initial_loss_scale: NotYet = None
    steps_per_increase: NotYet = None
    min_loss_scale: NotYet = None
    max_loss_scale: NotYet = None
    max_gradient_norm: PositiveFloat | None = None
    """Gradients are scaled down to this global L2 norm."""
    max_gradient_value: PositiveFloat | None = None
    """Gradients are clipped to this absolute value."""
    log_loss_scale: bool = False
    """Log the loss scale; a fixed one stands in the configuration."""

    @property
    def stream_dtype(self) -> FloatType:
        """The type in which weights leave the weight store."""
        return self.fp16_type if self.enabled else "float32"

    @property
    def compute_dtype(self) -> FloatType:
        """The type in which kernels compute."""
        return self.fp16_type if self.enabled and self.precision_opt_level > 0 else "float32"
