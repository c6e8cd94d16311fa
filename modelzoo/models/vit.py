"""Vision transformer (Dosovitskiy et al. 2021, "An image is worth 16x16 words").

Shapes: B batch, C channels, P patches, H hidden.
"""

from __future__ import annotations

from math import prod
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check
from torch import nn

from cstorch.metrics import AccuracyMetric
from modelzoo.data.images.transforms import Size
from modelzoo.models.blocks.initializers import (
    ConstantInitializer,
    TruncatedNormalInitializer,
    fill_parameters,
)
from modelzoo.models.blocks.layers import LearnedPosition, norm
from modelzoo.models.blocks.patches import check_patches, grid_of, to_patches
from modelzoo.models.blocks.residual_layers import transformer_layers
from modelzoo.models.blocks.transformer_config import Residual, TransformerConfig
from modelzoo.models.freezing import NamePattern, freeze
from waferstream.core.errors import ConfigError
from waferstream.workload.model_config import Feature
from waferstream.workload.models import ModelFamily
from waferstream.workload.published_names import published_vit_name


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


class PatchEncoder(nn.Module):
    """Images to activations of their patches and of a trained vector before them."""

    def __init__(self, config: PatchEncoderConfig) -> None:
        super().__init__()
        hidden, pixels = config.hidden_size, config.num_channels * prod(config.patch_size)
        self._patch_size = config.patch_size
        self.patch = nn.Linear(pixels, hidden, bias=config.use_embed_proj_bias)
        self.class_token = nn.Parameter(torch.empty(hidden))
        self.position = LearnedPosition(1 + prod(config.grid), hidden)
        self.dropout = nn.Dropout(config.embedding_dropout_rate)
        self.embedding_norm = norm(config) if config.use_post_embed_layer_norm else None
        self.encoder = transformer_layers(config)
        self.norm = norm(config) if config.use_final_layer_norm else None

    def encode(self, images: torch.Tensor, masks: torch.Tensor | None = None) -> torch.Tensor:
        """Return the activations (B, 1 + P, H) before the last norm.

        Args:
            images: (B, C, height, width).
            masks: Which patches are hidden, (B, P).
        """
        patches = to_patches(images, self._patch_size).to(self.patch.weight.dtype)
        token = self.class_token.expand(images.shape[0], 1, -1)
        x = torch.cat([token, self._hidden(self.patch(patches), masks)], dim=1)
        x = self.dropout(self._placed(x))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        for layer in self.encoder:
            x = layer(x, None)
        encoded: torch.Tensor = x
        return encoded

    def _hidden(self, embedded: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
        """Return embedded patches (B, P, H); this encoder hides none."""
        assert masks is None, "an encoder with hidden patches has a vector for them"
        return embedded

    def _placed(self, x: torch.Tensor) -> torch.Tensor:
        """Return activations (B, 1 + P, H) with positions."""
        placed: torch.Tensor = self.position(x)[0]
        return placed


class VitModel(PatchEncoder):
    """Vision transformer: images and classes to loss.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters.
    """

    def __init__(self, config: VitConfig) -> None:
        super().__init__(config)
        self.config = config
        width = config.hidden_size * (2 if config.use_dinov2_classifier else 1)
        self.classifier = nn.Linear(width, config.num_classes, bias=config.use_bias_in_output)
        self.accuracy: AccuracyMetric | None = None

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            images: fp32 (B, C, height, width).
            labels: int64 (B,).

        Raises:
            ConfigError: Channels, height or width are not those of the configuration.
        """
        scores = self.classify(images)
        if self.accuracy is not None and not self.training:
            self.accuracy(labels, scores.argmax(-1))
        return F.cross_entropy(scores.float(), labels)

    def classify(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores (B, classes) of images, (B, C, height, width)."""
        check_image_size(self.config, images)
        scores: torch.Tensor = self.classifier(self._pooled(self.encode(images)))
        return scores

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        """Return the part of the last activations (B, 1 + P, H) that the head reads."""
        if not self.config.use_dinov2_classifier:
            return x[:, 0] if self.norm is None else self.norm(x[:, 0])
        x = x if self.norm is None else self.norm(x)
        return torch.cat([x[:, 0], x[:, 1:].mean(1)], dim=1)

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        fill_encoder(self, self.config, seed)
        freeze(self, self.config.freeze or (), published_vit_name)
        if self.config.compute_eval_metrics:
            self.accuracy = AccuracyMetric("eval/accuracy_cls")


def fill_encoder(
    encoder: PatchEncoder, config: PatchEncoderConfig, seed: int, prefix: str = ""
) -> None:
    """Initialize an encoder and its heads; each parameter depends on (seed, its name) alone.

    Names begin with ``prefix``, of an encoder that is part of a model.
    """
    plain = TruncatedNormalInitializer(std=config.initializer_range)
    factor = ConstantInitializer(val=config.layer_scale or 1.0)
    fill_parameters(encoder, seed, plain, {"scale.factor": factor}, prefix=prefix)


def check_image_size(config: PatchEncoderConfig, images: torch.Tensor) -> None:
    """Raise ConfigError for images (B, C, height, width) of another size than stated."""
    stated = config.image_shape
    if tuple(images.shape[1:]) != stated:
        raise ConfigError(
            "images must have the channels and the size that the model states",
            code="image-size-mismatch",
            value=f"{tuple(images.shape[1:])}, the model {stated}",
            remedy="change image_size of the model, or the transforms of the data",
        )


VIT = ModelFamily(VitModel, VitConfig)
