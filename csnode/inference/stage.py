"""A stage of inference: a decoder, or layers of one, with the cache of its sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import torch

from csnode.inference.cache import KvCache
from csnode.inference.rows import PackedWeights, RowMode
from waferstream.core.errors import ConfigError
from waferstream.core.serving import Part

Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Tokens and positions, int64 (B, T), to scores of the next tokens (B, T, vocabulary)."""

PROBE_TOKENS = 100
"""Tokens of the sequence that is computed in several ways before the first request: more than one
block of the cache."""

_CHUNKS = (1, 2, 1, 3, 4, 1, 8, 1, 17, 1)
"""Tokens of the steps in which it is computed again."""

TOLERANCE = 1e-3
"""How far scores may be from those of the model alone, as a share of the largest: sums of fp32 have
another order, and the attention of a decoder that is computed wrongly is off by much more."""


class Stage:
    """Extends sequences by tokens.

    Args:
        scores: The model.
        vocabulary: Its tokens.
        context: The most tokens of a sequence.

    Raises:
        ConfigError: The model is not row-wise but for its attention, or this host computes a row
            with other bits in other company.
    """

    def __init__(self, scores: Scores, vocabulary: int, context: int) -> None:
        self._scores = scores
        self._weights = PackedWeights()
        self.cache = KvCache()
        self._prove(vocabulary, min(context, PROBE_TOKENS))

    @torch.no_grad()
    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores after the last token of each part, (parts, vocabulary)."""
        lasts = torch.tensor([len(part.tokens) for part in parts]).cumsum(0) - 1
        return self._rows(parts)[lasts]

    def _rows(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores after every token of the parts, (tokens, vocabulary)."""
        tokens = torch.tensor([[token] for part in parts for token in part.tokens])
        positions = torch.tensor(
            [[part.start + i] for part in parts for i in range(len(part.tokens))]
        )
        with RowMode(self._weights, self.cache, parts):
            return self._scores(tokens, positions)[:, 0]

    @torch.no_grad()
    def _prove(self, vocabulary: int, length: int) -> None:
        """Compute a sequence at once, and in steps and company; compare, also with the model.

        Raises:
            ConfigError: They differ.
        """
        tokens = tuple((7 * i + 3) % vocabulary for i in range(length))
        half = length // 2
        plain = self._scores(torch.tensor([tokens]), torch.arange(length)[None])[0]
        whole = self._rows([Part("whole", 0, tokens)])
        if not _close(whole, plain):
            raise ConfigError(
                "the model must compute the same row by row",
                code="rows-differ-from-model",
                value=f"scores differ by {(whole - plain).abs().max():.3g}",
                rule=f"at most {TOLERANCE:g} of the largest score",
                remedy="serve a decoder whose layers are row-wise but for causal attention",
            )
        self._rows([Part("company", 0, tokens[half:])])
        start = 0
        for length_of_chunk in cycle(_CHUNKS):
            if start == length:
                break
            chunk = Part("alone", start, tokens[start : start + length_of_chunk])
            company = Part("company", length - half, tokens[:1])
            rows = self._rows([company, chunk])[1:] if length_of_chunk > 1 else self._rows([chunk])
            end = start + len(chunk.tokens)
            if not torch.equal(rows, whole[start:end]):
                raise ConfigError(
                    "a row must have the same bits in any company",
                    code="rows-not-steady",
                    value=f"other scores of tokens {start} to {end - 1} of {length}",
                    rule="the packed product and attention by row, which torch has on x86",
                    remedy="serve on another host, and report its processor",
                )
            start = end
        for name in ("whole", "company", "alone"):
            self.cache.forget(name)


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max())
