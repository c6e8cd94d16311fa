"""A decoder of two layers, to serve."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from csnode.inference.stage import Scores, Stage
from csnode.micro_batch import SramLedger

VOCABULARY, HIDDEN, HEADS, CONTEXT = 11, 16, 2, 150

Mix = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Decoder(nn.Module):
    """Two layers of attention over learned positions."""

    def __init__(self, mix: Mix = causal) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.places = nn.Embedding(CONTEXT, HIDDEN)
        self.projections = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(2))
        self.head = nn.Linear(HIDDEN, VOCABULARY)
        self.mix = mix

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(positions)
        for projection in self.projections:
            heads = projection(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
            x = x + self.mix(*heads).transpose(1, 2).flatten(2)
        scores: torch.Tensor = self.head(F.gelu(x))
        return scores


def make_stage(
    scores: Scores | None = None, memory: SramLedger | None = None, token_bytes: int = 1
) -> Stage:
    """Return a stage of a small decoder, with much memory unless it is given."""
    ledger = memory or SramLedger("a stage", 10**6)
    return Stage(scores or Decoder(), VOCABULARY, CONTEXT, ledger, token_bytes)
