"""Keys and values of the tokens that sequences have so far."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

BLOCK = 64
"""Tokens by which the cache of a sequence grows. Attention reads whole blocks, of which it masks
what is missing: torch's kernel on CPU gives a row the same bits for any number of such blocks."""


def padded(tokens: int) -> int:
    """Return the tokens of as many blocks as hold some."""
    return -(-tokens // BLOCK) * BLOCK


PAGE = 4 * BLOCK
"""Tokens by which the memory of a sequence grows."""


@dataclass
class _Sequence:
    keys: dict[int, torch.Tensor] = field(default_factory=dict)  # by layer, (heads, tokens, D)
    values: dict[int, torch.Tensor] = field(default_factory=dict)


class KvCache:
    """The keys and values of sequences, by layer, in the dtype of the activations."""

    def __init__(self) -> None:
        self._sequences: dict[str, _Sequence] = {}

    @property
    def num_bytes(self) -> int:
        """The memory of all sequences."""
        tensors = (
            tensor
            for sequence in self._sequences.values()
            for kind in (sequence.keys, sequence.values)
            for tensor in kind.values()
        )
        return sum(tensor.nbytes for tensor in tensors)

    def extend(
        self, sequence: str, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values (tokens, heads, D) from a position on.

        Returns:
            Keys and values of all tokens so far, and zeros to the end of a block, (heads, S, D).
        """
        held = self._sequences.setdefault(sequence, _Sequence())
        end = start + len(keys)
        length = padded(end)
        found = []
        for kind, new in ((held.keys, keys), (held.values, values)):
            kind[layer] = _grown(kind.get(layer), new, length)
            kind[layer][:, start:end] = new.transpose(0, 1)
            found.append(kind[layer][:, :length])
        return found[0], found[1]

    def copy(self, source: str, target: str, tokens: int) -> None:
        """Let a sequence begin with the first tokens of another."""
        held, made = self._sequences[source], _Sequence()
        pages = -(-tokens // PAGE) * PAGE
        for kind, copied in ((held.keys, made.keys), (held.values, made.values)):
            for layer, tensor in kind.items():
                copied[layer] = F.pad(tensor[:, :tokens], (0, 0, 0, pages - tokens))
        self._sequences[target] = made

    def forget(self, sequences: Collection[str] | None) -> None:
        """Free what some sequences have; those of all if None. Idempotent."""
        for sequence in list(self._sequences) if sequences is None else sequences:
            self._sequences.pop(sequence, None)


def _grown(held: torch.Tensor | None, like: torch.Tensor, length: int) -> torch.Tensor:
    """Return a tensor (heads, at least ``length``, D) with what is held, of whole pages."""
    if held is not None and held.shape[1] >= length:
        return held
    grown = like.new_zeros(like.shape[1], -(-length // PAGE) * PAGE, like.shape[2])
    if held is not None:
        grown[:, : held.shape[1]] = held
    return grown
