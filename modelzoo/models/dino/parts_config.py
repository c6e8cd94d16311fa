"""Configuration of the parts of DINO: encoders, heads and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag

from modelzoo.data.images.transforms import Size
from modelzoo.models.blocks.initializers import InitializerKey
from modelzoo.models.vit import PatchEncoderConfig
from waferstream.core.config import Config
from waferstream.workload.model_config import Feature


class InterpolationConfig(Config):
    """How positions of small crops follow from those of large ones: bicubic interpolation."""

    antialias: bool = False
    interpolate_offset: float = 0.1
    """Added to the patches of a small crop before they are divided by those of a large one."""
    local_patch_dims: Size = (7, 7)
    """Patches of a small crop down and across."""


class TrunkConfig(PatchEncoderConfig):
    """An encoder of several images per sample."""

    name: Literal["MultiImageViTModel"]
    interpolate_position_embedding: InterpolationConfig | None = None
    use_masked_patches: bool = False
    """Whether a trained vector stands for hidden patches."""
    norm_first: Literal[True] = True
    attention_dropout_rate: float = Field(default=0.0, ge=0, lt=1)
    projection_initializer: InitializerKey = None
    position_embedding_initializer: InitializerKey = None
    cls_token_initializer: InitializerKey = None
    default_initializer: InitializerKey = None
    """Of all other weights; by default normal within two times ``initializer_range``."""
    stochastic_depth_drop_prob: float = Field(default=0.0, ge=0, lt=1)
    """Share of samples that skip a part of a layer in training."""
    stochastic_depth_drop_prob_schedule: Literal["linear", "constant"] = "linear"
    """Whether the share rises from 0 at the first layer, or is the same for all."""
    stochastic_depth_mode: Literal["batch", "row"] = "batch"
    """``row``: every crop draws for itself; ``batch``: those of a group draw together."""
    stochastic_depth_group_size: PositiveInt = 8
    """Consecutive crops of a group of mode ``batch``.

    The samples of a micro-batch must be a multiple of it, so the loss depends on no cluster.
    """

    def drop_path_rate(self, layer: int) -> float:
        if self.stochastic_depth_drop_prob_schedule == "constant":
            return self.stochastic_depth_drop_prob
        return self.stochastic_depth_drop_prob * layer / max(1, self.num_hidden_layers - 1)

    @property
    def drop_path_group(self) -> int:
        is_group = self.stochastic_depth_drop_prob > 0 and self.stochastic_depth_mode == "batch"
        return self.stochastic_depth_group_size if is_group else 1

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        return (Feature("images", (self.num_channels, *self.image_size)),)


class HeadConfig(Config):
    """A network from the vector of an image or a patch to scores of prototypes."""

    name: Literal["DinoHead"]
    input_size: PositiveInt
    output_size: PositiveInt
    num_layers: PositiveInt = 3
    hidden_size: PositiveInt = 2048
    bottleneck_size: PositiveInt = 256
    """Elements of the vector of length 1 that is compared with the prototypes."""
    use_bias_in_mlp: bool = True
    norm_last_layer: bool = False
    """Whether all prototypes keep length 1."""
    initializer: InitializerKey = None
    initializer_range: PositiveFloat = 0.02


class DistillationConfig(Config):
    """What both losses have: temperatures and the center of the teacher's scores."""

    input_size: PositiveInt
    warmup_teacher_temp: PositiveFloat
    teacher_temp: PositiveFloat
    warmup_teacher_temp_steps: int = Field(ge=0)
    """Steps in which the teacher's temperature rises from ``warmup_teacher_temp``."""
    total_steps: PositiveInt
    """No effect: the temperature is constant after its rise."""
    student_temp: PositiveFloat = 0.1
    center_momentum: float = Field(default=0.9, ge=0, lt=1)
    teacher_temp_scheduler: Literal["linear_constant", "linear_cosine"] = "linear_constant"
    """No effect: a cosine from ``teacher_temp`` to itself is constant."""


class DinoLossConfig(DistillationConfig):
    """The student's scores of an image against the teacher's of its other crops (DINO)."""

    name: Literal["DinoDistillationLoss"]


class PatchLossConfig(DistillationConfig):
    """The student's scores of hidden patches against the teacher's, who sees them (iBOT)."""

    name: Literal["iBOTPatchLoss"]
    no_slice: Literal[False] = False
    """Whether the outputs have no vector of the image before those of patches."""


class KoLeoLossConfig(Config):
    """The distance of each image from the nearest other one (Sablayrolles et al. 2019)."""

    name: Literal["KoLeoLoss"]
    group_size: int = Field(default=8, ge=2)
    """Consecutive samples of a batch among which the nearest image is looked for.

    The samples of a micro-batch must be a multiple of it, so the loss depends on no cluster. In the
    published training they are those of one GPU (facebookresearch/dinov2, koleo_loss.py).
    """


def _name(value: Any) -> Any:
    return value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)


Loss = Annotated[
    Annotated[DinoLossConfig, Tag("DinoDistillationLoss")]
    | Annotated[PatchLossConfig, Tag("iBOTPatchLoss")]
    | Annotated[KoLeoLossConfig, Tag("KoLeoLoss")],
    Discriminator(_name),
]
