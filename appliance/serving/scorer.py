"""What computes the tokens of sequences, whatever it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from waferstream.core.serving import Part


class Scorer(Protocol):
    """A model with the cache of its sequences: one stage, or a pipeline of several.

    Each method may raise CacheLostError, and then has no sequence any more.
    """

    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores that the parts ask for, one part after the other, fp32 (N, V)."""

    def copy(self, source: str, target: str, tokens: int) -> None:
        """Let a sequence begin with the first tokens of another."""

    def forget(self, sequence: str) -> None:
        """Free what a sequence has. Idempotent."""
