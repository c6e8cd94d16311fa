"""Patterns of the keys that a query reads in sparse layers, beside windows.

A pattern states keys before and after the query; causal order is not part of it. Where a layer has
several, a query reads the keys of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


class KeyPattern(Protocol):
    """Keys that a query reads."""

    def reads(self, before: torch.Tensor) -> torch.Tensor:
        """Return whether a query reads a key, bool (T, T) or (H, T, T).

        Args:
            before: How far the key lies before the query, int64 (T, T).
        """


@dataclass(frozen=True)
class Chunk:
    """The keys of the query's own chunk of ``size`` tokens."""

    size: int

    def reads(self, before: torch.Tensor) -> torch.Tensor:
        query, key = _places(before)
        return query // self.size == key // self.size


@dataclass(frozen=True)
class Columns:
    """The last ``width`` of each ``spacing`` keys, which all later queries read."""

    spacing: int
    width: int

    def reads(self, before: torch.Tensor) -> torch.Tensor:
        _, key = _places(before)
        columns = key % self.spacing >= self.spacing - self.width
        return columns.expand(before.shape)


@dataclass(frozen=True)
class FixedSparse:
    """The keys of the query's own block, and a group of summaries from the end of each block.

    Child et al. 2019, "Generating long sequences with sparse transformers", section 4.3, fixed
    attention.

    Attributes:
        block: Tokens of a block.
        width: Tokens of a group of summaries.
        groups: The group that each head reads, counted from the end of a block; one for all heads.
    """

    block: int
    width: int
    groups: tuple[int, ...]

    def reads(self, before: torch.Tensor) -> torch.Tensor:
        query, key = _places(before)
        group = (self.block - 1 - key % self.block) // self.width
        read = torch.tensor(self.groups, device=before.device)[:, None, None]
        return (query // self.block == key // self.block) | (group == read)


def _places(before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the places of queries (T, 1) and of keys (1, T)."""
    places = torch.arange(before.shape[-1], device=before.device)
    return places[:, None], places[None, :]
