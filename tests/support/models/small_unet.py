"""A small U-Net that learns to take noise out of images (Ho et al. 2020, arXiv:2006.11239)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

TIMES = 10


class Block(nn.Module):
    """Two convolutions around a shift by the time, with a residual path."""

    def __init__(self, channels: int, out_channels: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(2, channels), nn.GroupNorm(2, out_channels)])
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(channels, out_channels, 3, padding=1),
                nn.Conv2d(out_channels, out_channels, 3, padding=1),
            ]
        )
        self.shift = nn.Linear(width, out_channels)
        self.residual = nn.Conv2d(channels, out_channels, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return images with ``out_channels``."""
        hidden: torch.Tensor = self.convolutions[0](F.silu(self.norms[0](x)))
        hidden = F.silu(self.norms[1](hidden + self.shift(F.silu(time))[:, :, None, None]))
        shortcut: torch.Tensor = self.residual(x)
        return shortcut + F.dropout(self.convolutions[1](hidden), 0.1)


class UNet(nn.Module):
    """Predicts the noise in an image at a time, from fine to coarse and back."""

    def __init__(self, channels: int = 4, width: int = 8) -> None:
        super().__init__()
        self.times = nn.Embedding(TIMES, width)
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        self.down = Block(channels, channels, width)
        self.narrow = nn.Conv2d(channels, width, 3, stride=2, padding=1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.widen = nn.ConvTranspose2d(width, channels, 2, stride=2)
        self.up = Block(2 * channels, channels, width)
        self.leave = nn.Conv2d(channels, 3, 1)
        self.register_buffer("kept", torch.linspace(0.99, 0.01, TIMES))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error of the predicted noise."""
        noise = torch.randn_like(x)
        kept = self.get_buffer("kept")[time][:, None, None, None]
        embedded = self.times(time)
        fine = self.down(self.enter(kept.sqrt() * x + (1 - kept).sqrt() * noise), embedded)
        coarse = self.narrow(fine)
        pixels = coarse.flatten(2).transpose(1, 2)
        pixels = pixels + self.attention(pixels, pixels, pixels, need_weights=False)[0]
        coarse = pixels.transpose(1, 2).unflatten(2, coarse.shape[2:])
        joined = torch.cat([self.widen(coarse), fine], dim=1)
        return F.mse_loss(self.leave(self.up(joined, embedded)), noise)
