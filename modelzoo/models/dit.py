"""A diffusion transformer (Peebles and Xie 2023, "Scalable diffusion models with transformers").

Shapes: B batch, C channels, P patches, H hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.dit_config import DitConfig
from modelzoo.models.initialization import fill_parameters
from modelzoo.models.layers import Attention, FeedForward

_LONGEST_WAVE = 10000.0
"""Of the sinusoids (Vaswani et al. 2017, section 3.5)."""

_ZERO_AT_FIRST = (
    "scale.weight", "shift.weight", "attention_gate.weight", "feed_forward_gate.weight",
    "head.output.weight",
)  # fmt: skip
"""Every block starts as the identity, and the guess as 0 (adaLN-Zero, section 3.2)."""


class DitModel(nn.Module):
    """An image in the autoencoder's space and noise in, loss out.

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
        """The fp32 scalar mean squared error of the guessed noise.

        ``latents`` and ``noise`` are fp32 (B, C, height, width), ``timesteps`` and ``labels``
        int64 (B,).
        """
        guess = self.guess(noised(self.config, latents, noise, timesteps), timesteps, labels)
        return F.mse_loss(guess.float(), noise)

    def guess(
        self, images: torch.Tensor, timesteps: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """The noise (B, C, height, width) in images that have been through ``timesteps``."""
        dtype = self.patch.weight.dtype
        x = self.patch(to_patches(self.config, images).to(dtype))
        x = self.dropout(x + grid_positions(self.config, x))
        condition = F.silu(self.timestep(timesteps) + self.label(labels))[:, None, :]
        for layer in self.encoder:
            x = layer(x, condition)
        return to_images(self.config, self.head(x, condition))

    def initialize(self, seed: int) -> None:
        """Fill the parameters; each depends on (seed, its name) alone."""
        std = self.config.initializer_range
        fill_parameters(self, seed, std, dict.fromkeys(_ZERO_AT_FIRST, 0.0))


class TimestepEmbedding(nn.Module):
    """How much noise there is, as a vector: sinusoids through two projections."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.frequency_embedding_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, timesteps: torch.Tensor) -> torch.Tensor:
        waves = sinusoids(timesteps.float(), self.up.in_features)
        embedded: torch.Tensor = self.output(F.silu(self.up(waves.to(self.up.weight.dtype))))
        return embedded


class LabelEmbedding(nn.Module):
    """What the image shows, as a vector; in training, sometimes withheld."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.num_classes + 1, config.hidden_size)
        self._none = config.num_classes
        self._dropout_rate = config.label_dropout_rate

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        if self.training and self._dropout_rate > 0:
            draws = torch.rand_like(labels, dtype=torch.float32)
            labels = labels.masked_fill(draws < self._dropout_rate, self._none)
        embedded: torch.Tensor = self.table(labels)
        return embedded


class ConditionedLayer(nn.Module):
    """Attention and feed-forward whose scale, shift and gate the condition sets (adaLN-Zero).

    Each of the six has a projection of its own, as in the vendor's model.
    """

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        attention = SoftmaxFp32Attention if config.attention_softmax_fp32 else Attention
        self.attention_norm = AdaptiveNorm(config)
        self.attention = attention(config)
        self.attention_gate = nn.Linear(hidden, hidden)
        self.feed_forward_norm = AdaptiveNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_gate = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """(B, P, H) activations under a (B, 1, H) condition."""
        seen = self.attention(self.attention_norm(x, condition), None)
        x = x + self.attention_gate(condition) * self.dropout(seen)
        inner = self.feed_forward(self.feed_forward_norm(x, condition))
        added: torch.Tensor = x + self.feed_forward_gate(condition) * self.dropout(inner)
        return added


class AdaptiveNorm(nn.Module):
    """A norm without weights: the condition sets scale and shift in their place (adaLN)."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.layer_norm_epsilon
        self.norm = nn.LayerNorm(hidden, eps=eps, elementwise_affine=False)
        self.scale = nn.Linear(hidden, hidden)
        self.shift = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.norm(x) * (1 + self.scale(condition)) + self.shift(condition)
        return scaled


class SoftmaxFp32Attention(Attention):
    """Scores leave the products for a softmax in fp32: three kernels, and scores of three dtypes.

    The fused kernel of language models sums in fp32, too, but keeps scores as activations are.
    """

    def mix(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        scores = query @ (key * self.scale).transpose(-2, -1)
        if mask is not None:
            scores = scores + mask
        weights = scores.float().softmax(-1).to(value.dtype)
        return F.dropout(weights, self.dropout_rate, self.training) @ value


class ConditionedHead(nn.Module):
    """From activations back to patches of pixels."""

    def __init__(self, config: DitConfig, pixels: int) -> None:
        super().__init__()
        self.norm = AdaptiveNorm(config)
        self.output = nn.Linear(config.hidden_size, pixels)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        patches: torch.Tensor = self.output(self.norm(x, condition))
        return patches


def noised(
    config: DitConfig, images: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor
) -> torch.Tensor:
    """Images after so many steps of added noise, in one go (Ho et al. 2020, DDPM, eq. 4).

    The share of the image that is left after a step is a product over the steps before; it is
    formed as a sum of logarithms.
    """
    betas = torch.linspace(config.beta_start, config.beta_end, config.num_diffusion_steps)
    left = torch.log1p(-betas.to(images.device)).cumsum(0).exp()[timesteps][:, None, None, None]
    return left.sqrt() * images + (1 - left).sqrt() * noise


def to_patches(config: DitConfig, images: torch.Tensor) -> torch.Tensor:
    """(B, C, height, width) to (B, P, pixels of a patch), row by row."""
    (rows, columns), (down, across) = config.grid, config.patch_size
    parted = images.reshape(*images.shape[:2], rows, down, columns, across)
    return parted.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def to_images(config: DitConfig, patches: torch.Tensor) -> torch.Tensor:
    """The inverse of ``to_patches``."""
    channels = config.vae.latent_channels
    parted = patches.reshape(len(patches), *config.grid, channels, *config.patch_size)
    return parted.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def grid_positions(config: DitConfig, like: torch.Tensor) -> torch.Tensor:
    """Fixed vectors (P, H) that tell row and column, half each; dtype and device as ``like``."""
    rows, columns = config.grid
    size = config.hidden_size // 2
    down = sinusoids(torch.arange(rows, device=like.device).float(), size)
    across = sinusoids(torch.arange(columns, device=like.device).float(), size)
    both = [down[:, None].expand(-1, columns, -1), across[None].expand(rows, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1).to(like.dtype)


def sinusoids(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Sines and cosines (N, size) of fp32 positions (N,), in waves of 1 to 10000 steps."""
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size
    angles = positions[:, None] * _LONGEST_WAVE**-exponents
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
