"""Layers: how attention and feed-forward add to the residual stream.

``TransformerConfig.residual`` selects the layer (A attention, F feed-forward, N a separate norm at
each place):
    pre_norm    x + A(N x), then x + F(N x)         (Radford et al. 2019, GPT-2)
    sandwich    x + N A(N x), then x + N F(N x)     (Gemma Team 2024, Gemma 2)
    post_norm   N(x + A x), then N(x + F x)         (Vaswani et al. 2017)
    parallel    x + A(N x) + F(N x)                 (Wang and Komatsuzaki 2021, GPT-J)
"""

from __future__ import annotations

import torch
from torch import nn

from modelzoo.models.blocks.attention import attention
from modelzoo.models.blocks.experts import feed_forward
from modelzoo.models.blocks.layers import Routings, drop_path, layer_scale, norm
from modelzoo.models.blocks.rotary import Rotation
from modelzoo.models.blocks.transformer_config import TransformerConfig


class TransformerLayer(nn.Module):
    """Pre-norm layer: attention and feed-forward read a norm of the residual stream."""

    def __init__(self, config: TransformerConfig, number: int) -> None:
        super().__init__()
        self.attention_norm = norm(config)
        self.attention = attention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.attention_scale, self.feed_forward_scale = layer_scale(config), layer_scale(config)
        self.drop_path = drop_path(config, number)

    def forward(
        self,
        x: torch.Tensor,
        rotation: Rotation | None,
        mask: torch.Tensor | None = None,
        routings: Routings | None = None,
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        attended = self.dropout(self.attention(self.attention_norm(x), rotation, mask))
        x = x + self.drop_path(self.attention_scale(attended))
        fed = self.dropout(self.feed_forward(self.feed_forward_norm(x), routings))
        added: torch.Tensor = x + self.drop_path(self.feed_forward_scale(fed))
        return added


class SandwichLayer(TransformerLayer):
    """Pre-norm layer whose parts are also normalized before each addition."""

    def __init__(self, config: TransformerConfig, number: int) -> None:
        super().__init__(config, number)
        self.attention_output_norm = norm(config)
        self.feed_forward_output_norm = norm(config)

    def forward(
        self,
        x: torch.Tensor,
        rotation: Rotation | None,
        mask: torch.Tensor | None = None,
        routings: Routings | None = None,
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        attended = self.attention(self.attention_norm(x), rotation, mask)
        x = x + self.dropout(self.attention_output_norm(attended))
        fed = self.feed_forward(self.feed_forward_norm(x), routings)
        added: torch.Tensor = x + self.dropout(self.feed_forward_output_norm(fed))
        return added


class PostNormLayer(TransformerLayer):
    """Post-norm layer: the residual stream is normalized after each addition."""

    def forward(
        self,
        x: torch.Tensor,
        rotation: Rotation | None,
        mask: torch.Tensor | None = None,
        routings: Routings | None = None,
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        x = self.attention_norm(x + self.dropout(self.attention(x, rotation, mask)))
        added: torch.Tensor = self.feed_forward_norm(
            x + self.dropout(self.feed_forward(x, routings))
        )
        return added


class ParallelLayer(TransformerLayer):
    """Parallel layer: attention and feed-forward read the same stream, by one norm or two."""

    def __init__(self, config: TransformerConfig, number: int) -> None:
        super().__init__(config, number)
        self._shares_norm = config.shares_layer_norm
        if self._shares_norm:
            del self.feed_forward_norm

    def forward(
        self,
        x: torch.Tensor,
        rotation: Rotation | None,
        mask: torch.Tensor | None = None,
        routings: Routings | None = None,
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        read = self.attention_norm(x)
        also_read = read if self._shares_norm else self.feed_forward_norm(x)
        sum_of_both = self.attention(read, rotation, mask) + self.feed_forward(also_read, routings)
        added: torch.Tensor = x + self.dropout(sum_of_both)
        return added


def transformer_layers(config: TransformerConfig) -> nn.ModuleList:
    """Return all layers of a model, of the kind that the configuration selects."""
    kinds = {
        "pre_norm": TransformerLayer,
        "sandwich": SandwichLayer,
        "post_norm": PostNormLayer,
        "parallel": ParallelLayer,
    }
    layers = range(config.num_hidden_layers)
    return nn.ModuleList(kinds[config.residual](config, number) for number in layers)
