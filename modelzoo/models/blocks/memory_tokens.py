"""Memory tokens: tokens between the chunks of a sequence, in which a model sums up what it read.

Zhang et al. 2024, "Long context compression with activation beacon", arXiv:2401.03462, section 3.
Keys: ``memory_tokens`` of a model section (Model Zoo 2.10, ``layers/MemoryTokenHelpers.py``).

Shapes: B batch, T tokens of the batch, M tokens with those of the memory, C hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class MemoryPlaces:
    """Where memory tokens lie: ``count`` behind every ``chunk`` tokens that others follow."""

    chunk: int
    count: int

    @property
    def spacing(self) -> int:
        """Tokens of a chunk and its memory."""
        return self.chunk + self.count

    def length(self, tokens: int) -> int:
        """Return the length M of a sequence of so many tokens with its memory."""
        return tokens + self.count * ((tokens - 1) // self.chunk)

    def are_memory(self, length: int, device: torch.device) -> torch.Tensor:
        """Return which places of a sequence with memory hold it, bool (M,)."""
        return torch.arange(length, device=device) % self.spacing >= self.chunk

    def insert(self, token_ids: torch.Tensor, memory_id: int) -> torch.Tensor:
        """Return tokens (B, T) with those of the memory between them, (B, M)."""
        length = self.length(token_ids.shape[1])
        places = torch.arange(length, device=token_ids.device)
        sources = places - places // self.spacing * self.count
        is_memory = places % self.spacing >= self.chunk
        spread = token_ids.index_select(1, sources.masked_fill(is_memory, 0))
        return spread.masked_fill(is_memory, memory_id)

    def remove(self, x: torch.Tensor) -> torch.Tensor:
        """Return the vectors (B, T, C) of the tokens of the batch among (B, M, C)."""
        chunks = x.shape[1] // self.spacing
        if chunks == 0:
            return x
        end = chunks * self.spacing  # behind which is a chunk without memory
        whole = x[:, :end].unflatten(1, (chunks, self.spacing))
        return torch.cat([whole[:, :, : self.chunk].flatten(1, 2), x[:, end:]], dim=1)


class MemoryLinear(nn.Linear):
    """A projection with weights of its own, ``memory``, for memory tokens."""

    def __init__(self, places: MemoryPlaces, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self._places = places
        self.memory = nn.Linear(inputs, outputs, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, M, outputs) of (B, M, inputs)."""
        is_memory = self._places.are_memory(x.shape[1], x.device)[:, None]
        return torch.where(is_memory, self.memory(x), super().forward(x))


class MemoryEmbedding(nn.Module):
    """One trained vector in place of the embedding of every memory token."""

    def __init__(self, places: MemoryPlaces, hidden_size: int) -> None:
        super().__init__()
        self._places = places
        self.weight = nn.Parameter(torch.empty(1, hidden_size))

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        """Return embedded tokens (B, M, C) with the vector at the places of the memory."""
        is_memory = self._places.are_memory(embedded.shape[1], embedded.device)[:, None]
        return torch.where(is_memory, self.weight, embedded)
