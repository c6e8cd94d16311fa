"""Configuration of the diffusion transformer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.data.images.latents import LATENT_SCALE, checked_scale
from modelzoo.data.images.transforms import Size
from modelzoo.models.blocks.patches import check_patches, grid_of
from modelzoo.models.blocks.transformer_config import Nonlinearity, TransformerConfig
from modelzoo.models.model_config import Feature
from waferstream.core.config import Config


class VaeConfig(Config):
    """The autoencoder that precedes the model, and is not part of it.

    Its latents are the input. The keys from ``act_fn`` on describe the autoencoder itself, which no
    training runs; they have no effect.
    """

    latent_size: Size = (32, 32)
    """Height and width; those of an image of 256 x 256 pixels."""
    latent_channels: PositiveInt = 4
    scaling_factor: float = LATENT_SCALE
    """Factor on the latents, which the data processor applies."""

    act_fn: str = "silu"
    in_channels: PositiveInt = 3
    out_channels: PositiveInt = 3
    block_out_channels: tuple[PositiveInt, ...] = (64,)
    down_block_types: tuple[str, ...] = ("DownEncoderBlock2D",)
    up_block_types: tuple[str, ...] = ("UpDecoderBlock2D",)
    layers_per_block: PositiveInt | None = 1
    norm_num_groups: PositiveInt = 32
    sample_size: PositiveInt | None = None

    @check("scaling_factor")
    @classmethod
    def _is_published(cls, factor: float) -> float:
        return checked_scale(factor)


class DitConfig(TransformerConfig):
    """A transformer that predicts the noise in an image (Peebles and Xie 2023, DiT)."""

    name: str = "dit"
    vae: VaeConfig = VaeConfig()
    patch_size: Size = (2, 2)
    position_embedding_type: Literal["fixed"] = "fixed"
    nonlinearity: Nonlinearity = Field(default="gelu", alias="encoder_nonlinearity")
    norm_first: Literal[True] = True
    layer_norm_epsilon: PositiveFloat = 1e-6
    embedding_nonlinearity: Literal["silu"] = "silu"

    # Conditioning of the blocks
    frequency_embedding_size: PositiveInt = 256
    """Sines and cosines that encode the time step."""
    num_classes: PositiveInt = 1000
    label_dropout_rate: float = Field(default=0.1, ge=0, lt=1)
    """Share of labels replaced by "none" in training, for classifier-free guidance."""

    # Diffusion
    use_conv_patchified_embedding: bool = True
    """Whether patches are embedded by a convolution; a linear layer computes the same."""
    reverse_process: Any = None
    """How images are sampled from a trained model, which is another program; no effect here."""
    num_diffusion_steps: PositiveInt = 1000
    schedule_name: Literal["linear"] = "linear"
    beta_start: NonNegativeFloat = 1e-4
    """Variance of the noise of the first step; ``beta_end`` is that of the last step."""
    beta_end: float = Field(default=0.02, ge=0, lt=1)

    @property
    def has_fp32_softmax(self) -> bool:
        return self.attention_softmax_fp32

    @property
    def grid(self) -> Size:
        """Patches down and across."""
        return grid_of(self.vae.latent_size, self.patch_size)

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        image = (self.vae.latent_channels, *self.vae.latent_size)
        return (
            Feature("latents", image),
            Feature("noise", image),
            Feature("timesteps", (), self.num_diffusion_steps),
            Feature("labels", (), self.num_classes),
        )

    @check("patch_size")
    @classmethod
    def _patches_tile_the_image(cls, patch_size: Size, info: ValidationInfo) -> Size:
        latent_size = info.data["vae"].latent_size if "vae" in info.data else patch_size
        return check_patches(patch_size, latent_size, "vae.latent_size")

    @check("hidden_size")
    @classmethod
    def _holds_both_coordinates(cls, hidden_size: int) -> int:
        if hidden_size % 4:
            raise ValueError("hidden_size must be a multiple of 4: sines and cosines of two axes")
        return hidden_size

    @check("frequency_embedding_size")
    @classmethod
    def _holds_sines_and_cosines(cls, frequency_embedding_size: int) -> int:
        if frequency_embedding_size % 2:
            raise ValueError("frequency_embedding_size must be even: as many sines as cosines")
        return frequency_embedding_size
