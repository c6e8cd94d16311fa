"""What a model reads: one description that synthetic data, examples and checks go by."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Feature:
    """One input tensor, without its batch dimension."""

    name: str
    shape: tuple[int, ...]
    below: int | None = None
    """Integers are in [0, below); None means real numbers."""

    @property
    def dtype(self) -> torch.dtype:
        """int64 for integers, float32 for real numbers."""
        return torch.float32 if self.below is None else torch.int64
