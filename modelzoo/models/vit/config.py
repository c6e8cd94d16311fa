"""Configuration of the vision transformer (Model Zoo 2.10)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.data.images.transforms import Size
from modelzoo.models.blocks.patches import check_patches, grid_of
from modelzoo.models.blocks.transformer_config import Residual, TransformerConfig
from modelzoo.models.freezing import NamePattern
from modelzoo.models.model_config import Feature


class PatchEncoderConfig(TransformerConfig):
    """An encoder that reads the patches of images (Dosovitskiy et al. 2021, ViT)."""

    # Patches
    image_size: Size = (224, 224)
    num_channels: PositiveInt = 3
    patch_size: Size = (16, 16)
    use_conv_patchified_embedding: bool = False
    """Whether patches are embedded by a convolution; a linear layer computes the same."""
    use_embed_proj_bias: bool = True
    """Whether the embedding of patches has a bias."""
    prepend_cls_token: Literal[True] = True
    """A trained vector precedes the patches; the classes are read from its place."""
    position_embedding_type: Literal["learned"] = "learned"
    embedding_dropout_rate: float = Field(default=0.0, ge=0, lt=1)

    # Layers
    norm_type: Literal["layernorm"] = "layernorm"
    layer_norm_epsilon: PositiveFloat = 1e-5
    norm_first: bool = True
    """Whether layers are pre-norm instead of post-norm."""
    layerscale_value: PositiveFloat | None = None
    """Initial value of trained factors on what a pre-norm layer adds, per channel."""
    use_post_embed_layer_norm: bool = False
    """Whether a norm precedes the first layer (Radford et al. 2021, CLIP, section 2.4)."""
    use_final_layer_norm: bool = True
    """Whether a norm follows the last layer."""

    use_encoder_pooler_layer: Literal[False] = False
    pooler_nonlinearity: str | None = None
    """No effect: there is no pooler."""

    @property
    def has_fp32_softmax(self) -> bool:
        return self.attention_softmax_fp32

    @property
    def layer_scale(self) -> float | None:
        return self.layerscale_value

    @property
    def residual(self) -> Residual:
        return "pre_norm" if self.norm_first else "post_norm"

    @property
    def grid(self) -> Size:
        """Patches down and across."""
        return grid_of(self.image_size, self.patch_size)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return (self.num_channels, *self.image_size)

    def up_to(self, layer: int) -> Self:
        """Return the encoder whose output is that of a layer, without a norm.

        Layers count from 0, and from -1 backwards. The layers behind it are left out.

        Raises:
            ValueError: There is no such layer.
        """
        if not -self.num_hidden_layers <= layer < self.num_hidden_layers:
            raise ValueError(f"must be a layer of the {self.num_hidden_layers} of the encoder")
        layers = layer % self.num_hidden_layers + 1
        changes = {"num_hidden_layers": layers, "use_final_layer_norm": False}
        return self.model_copy(update=changes)

    @check("layerscale_value")
    @classmethod
    def _layers_add_to_the_stream(
        cls, layerscale_value: float | None, info: ValidationInfo
    ) -> float | None:
        if layerscale_value is not None and not info.data.get("norm_first", True):
            raise ValueError("requires norm_first")
        return layerscale_value

    @check("patch_size")
    @classmethod
    def _patches_tile_the_image(cls, patch_size: Size, info: ValidationInfo) -> Size:
        return check_patches(patch_size, info.data.get("image_size", patch_size), "image_size")


class VitConfig(PatchEncoderConfig):
    """A classifier of images by their patches."""

    name: str = "vision_transformer"
    num_classes: PositiveInt = 2
    use_bias_in_output: bool = True
    """Whether the head has a bias."""
    use_dinov2_classifier: bool = False
    """Whether the head also reads the mean of the patches (Oquab et al. 2023, DINOv2)."""
    freeze: tuple[NamePattern, ...] | None = None
    """Regular expressions for names of modules and parameters that are not trained.

    ``^vit_model`` stands for all but the head, ``^classifier`` for the head.
    """
    compute_eval_metrics: bool = True
    """Whether an evaluation computes the accuracy."""

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        return (
            Feature("images", self.image_shape),
            Feature("labels", (), self.num_classes),
        )
