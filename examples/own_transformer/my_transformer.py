"""A transformer of your own: plain PyTorch, nothing of WaferStream in it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.MultiheadAttention(width, num_heads, batch_first=True)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the hidden states after the layer."""
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        result: torch.Tensor = x + self.network(self.norms[1](x))
        return result


class MyTransformer(nn.Module):
    """A byte-level language model. The arguments are the keys of the model section."""

    def __init__(self, width: int, depth: int, num_heads: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList([Layer(width, num_heads) for _ in range(depth)])
        self.head = nn.Linear(width, 256)

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss; the arguments are the tensors of the data processor's batches."""
        length = input_ids.shape[1]
        x = self.tokens(input_ids) + self.positions.weight[:length]
        mask = torch.full((length, length), float("-inf")).triu(1).to(x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        scores = self.head(x).float()
        losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
        counts = attention_mask.flatten().float()
        return (losses * counts).sum() / counts.sum()
