"""Diffusion transformer (Peebles and Xie 2023, "Scalable diffusion models with transformers").

Shapes: B batch, C channels, P patches, H hidden.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo
from pydantic import field_validator as check
from torch import nn

from modelzoo.data.images.latents import LATENT_SCALE, checked_scale
from modelzoo.data.images.transforms import Size
from modelzoo.models.blocks.attention import attention
from modelzoo.models.blocks.initializers import NormalInitializer, ZerosInitializer, fill_parameters
from modelzoo.models.blocks.layers import LONGEST_WAVE, FeedForward
from modelzoo.models.blocks.patches import check_patches, grid_of, to_images, to_patches
from modelzoo.models.blocks.transformer_config import Nonlinearity, TransformerConfig
from waferstream.core.config import Config
from waferstream.workload.model_config import Feature
from waferstream.workload.models import ModelFamily


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


_INITIALLY_ZERO = (
    "scale.weight", "shift.weight", "attention_gate.weight", "feed_forward_gate.weight",
    "head.output.weight",
)  # fmt: skip
"""Weights that start at 0, so that every block is the identity and the prediction is 0 (adaLN-Zero,
Peebles and Xie 2023, section 3.2)."""


class DitModel(nn.Module):
    """Diffusion transformer: latents of an image and noise to loss.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters.
    """

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.config = config
        pixels = config.vae.latent_channels * config.patch_size[0] * config.patch_size[1]
        self.patch = nn.Linear(pixels, config.hidden_size)
        self.timestep = TimestepEmbedding(config)
        self.label = LabelEmbedding(config)
        self.dropout = nn.Dropout(config.embedding_dropout_rate)
        self.encoder = nn.ModuleList(
            ConditionedLayer(config) for _ in range(config.num_hidden_layers)
        )
        self.head = ConditionedHead(config, pixels)

    def forward(
        self,
        latents: torch.Tensor,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        labels: torch.Tensor,
    ) -> torch.Tensor:
        """Return the fp32 scalar mean squared error of the predicted noise.

        Args:
            latents: fp32 (B, C, height, width).
            noise: fp32 (B, C, height, width).
            timesteps: int64 (B,).
            labels: int64 (B,).
        """
        predicted = self.predict(noised(self.config, latents, noise, timesteps), timesteps, labels)
        return F.mse_loss(predicted.float(), noise)

    def predict(
        self, images: torch.Tensor, timesteps: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the noise (B, C, height, width) in images after ``timesteps`` of diffusion."""
        dtype = self.patch.weight.dtype
        x = self.patch(to_patches(images, self.config.patch_size).to(dtype))
        x = self.dropout(x + grid_positions(self.config, x))
        condition = F.silu(self.timestep(timesteps) + self.label(labels))[:, None, :]
        for layer in self.encoder:
            x = layer(x, condition)
        return to_images(self.head(x, condition), self.config.grid, self.config.patch_size)

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        plain = NormalInitializer(std=self.config.initializer_range)
        fill_parameters(self, seed, plain, dict.fromkeys(_INITIALLY_ZERO, ZerosInitializer()))


class TimestepEmbedding(nn.Module):
    """Vector of the time step: sinusoids through two projections."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.frequency_embedding_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, timesteps: torch.Tensor) -> torch.Tensor:
        """Return vectors (B, H) of int64 time steps (B,)."""
        waves = sinusoids(timesteps.float(), self.up.in_features)
        embedded: torch.Tensor = self.output(F.silu(self.up(waves.to(self.up.weight.dtype))))
        return embedded


class LabelEmbedding(nn.Module):
    """Vector of the class label; dropped at random in training."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.num_classes + 1, config.hidden_size)
        self._none = config.num_classes
        self._dropout_rate = config.label_dropout_rate

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        """Return vectors (B, H) of int64 labels (B,)."""
        if self.training and self._dropout_rate > 0:
            draws = torch.rand_like(labels, dtype=torch.float32)
            labels = labels.masked_fill(draws < self._dropout_rate, self._none)
        embedded: torch.Tensor = self.table(labels)
        return embedded


class ConditionedLayer(nn.Module):
    """Layer whose scales, shifts and gates are projections of the condition (adaLN-Zero).

    Each of the six has a separate projection, as in the vendor's model.
    """

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.attention_norm = AdaptiveNorm(config)
        self.attention = attention(config)
        self.attention_gate = nn.Linear(hidden, hidden)
        self.feed_forward_norm = AdaptiveNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_gate = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Return the activations (B, P, H) under a condition (B, 1, H)."""
        seen = self.attention(self.attention_norm(x, condition), None)
        x = x + self.attention_gate(condition) * self.dropout(seen)
        inner = self.feed_forward(self.feed_forward_norm(x, condition))
        added: torch.Tensor = x + self.feed_forward_gate(condition) * self.dropout(inner)
        return added


class AdaptiveNorm(nn.Module):
    """Norm whose scale and shift are projections of the condition (adaLN)."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.layer_norm_epsilon
        self.norm = nn.LayerNorm(hidden, eps=eps, elementwise_affine=False)
        self.scale = nn.Linear(hidden, hidden)
        self.shift = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Return (B, P, H) normalized, scaled and shifted by a (B, 1, H) condition."""
        scaled: torch.Tensor = self.norm(x) * (1 + self.scale(condition)) + self.shift(condition)
        return scaled


class ConditionedHead(nn.Module):
    """Projection of activations to patches of pixels."""

    def __init__(self, config: DitConfig, pixels: int) -> None:
        super().__init__()
        self.norm = AdaptiveNorm(config)
        self.output = nn.Linear(config.hidden_size, pixels)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Return patches (B, P, pixels) of activations (B, P, H)."""
        patches: torch.Tensor = self.output(self.norm(x, condition))
        return patches


def noised(
    config: DitConfig, images: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor
) -> torch.Tensor:
    """Return images after ``timesteps`` steps of added noise (Ho et al. 2020, DDPM, eq. 4).

    The remaining share of the image is a product over the steps, formed as a sum of logarithms.
    """
    betas = torch.linspace(config.beta_start, config.beta_end, config.num_diffusion_steps)
    left = torch.log1p(-betas.to(images.device)).cumsum(0).exp()[timesteps][:, None, None, None]
    return left.sqrt() * images + (1 - left).sqrt() * noise


def grid_positions(config: DitConfig, like: torch.Tensor) -> torch.Tensor:
    """Return fixed vectors (P, H) that encode row and column, half each, in dtype of ``like``."""
    rows, columns = config.grid
    size = config.hidden_size // 2
    down = sinusoids(torch.arange(rows, device=like.device).float(), size)
    across = sinusoids(torch.arange(columns, device=like.device).float(), size)
    both = [down[:, None].expand(-1, columns, -1), across[None].expand(rows, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1).to(like.dtype)


def sinusoids(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Return sines and cosines, fp32 (N, size), of fp32 positions (N,).

    Pair i has the angle position * LONGEST_WAVE^(-2i / size); all sines come first.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size
    angles = positions[:, None] * LONGEST_WAVE**-exponents
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


DIT = ModelFamily(DitModel, DitConfig)
