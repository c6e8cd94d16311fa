"""The model keys of params.yaml for diffusion transformers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from modelzoo.models.feature import Feature
from modelzoo.models.transformer_config import Nonlinearity, TransformerConfig
from wsc.core.config import Config

Size = tuple[PositiveInt, PositiveInt]
"""Height and width."""


class VaeConfig(Config):
    """What the autoencoder in front of the model hands over; it is not part of the model."""

    latent_size: Size = (32, 32)
    """An image of 256 x 256 pixels."""
    latent_channels: PositiveInt = 4


class DitConfig(TransformerConfig):
    """A transformer that finds the noise in an image (Peebles and Xie 2023, DiT)."""

    name: str = "dit"
    vae: VaeConfig = VaeConfig()
    patch_size: Size = (2, 2)
    position_embedding_type: Literal["fixed"] = "fixed"
    nonlinearity: Nonlinearity = Field(default="gelu", alias="encoder_nonlinearity")
    norm_first: Literal[True] = True
    layer_norm_epsilon: PositiveFloat = 1e-6
    embedding_nonlinearity: Literal["silu"] = "silu"

    # What a block is conditioned on
    frequency_embedding_size: PositiveInt = 256
    """Sines and cosines that tell the time step."""
    num_classes: PositiveInt = 1000
    label_dropout_rate: float = Field(default=0.1, ge=0, lt=1)
    """How often a label is replaced by "none", for guidance without a classifier."""

    # Diffusion
    num_diffusion_steps: PositiveInt = 1000
    schedule_name: Literal["linear"] = "linear"
    beta_start: NonNegativeFloat = 1e-4
    """Variance of the noise that the first step adds; ``beta_end`` is the last step's."""
    beta_end: float = Field(default=0.02, ge=0, lt=1)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        (height, width), (down, across) = self.vae.latent_size, self.patch_size
        return height // down, width // across

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
        if any(size % patch for size, patch in zip(latent_size, patch_size, strict=True)):
            raise ValueError(f"patch_size divides vae.latent_size, which is {latent_size}")
        return patch_size

    @check("hidden_size")
    @classmethod
    def _holds_both_coordinates(cls, hidden_size: int) -> int:
        if hidden_size % 4:
            raise ValueError("hidden_size holds sines and cosines of two coordinates: divides by 4")
        return hidden_size

    @check("frequency_embedding_size")
    @classmethod
    def _holds_sines_and_cosines(cls, frequency_embedding_size: int) -> int:
        if frequency_embedding_size % 2:
            raise ValueError("frequency_embedding_size is even: as many sines as cosines")
        return frequency_embedding_size
