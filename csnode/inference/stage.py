"""A stage of inference: a decoder, or layers of one, with the cache of its sequences.

It computes rows: tokens of any sequences, each of which has the same bits in any company. A forward
pass is row-wise but for attention. So the rows are the batch of a model, each a sequence of one
token at its own position; this mode lets its products be row-wise to the bit, and its attention
read the cache (``row_forms``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F

from csnode.inference.cache import KvCache
from csnode.inference.row_forms import (
    CachedAttention,
    PackedWeights,
    in_whole_vectors,
    not_row_wise,
)
from csnode.micro_batch import SramLedger
from waferstream.core.errors import ConfigError
from waferstream.core.serving import Part
from waferstream.numerics.forms import FormMode

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

_PRODUCTS = frozenset(
    {
        torch.matmul, torch.bmm, torch.baddbmm, torch.einsum, torch.mm, torch.addmm,
        torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.bmm, torch.Tensor.mm,
    }
)  # fmt: skip
"""Products of activations, as attention without the fused kernel has them."""


_FUNCTIONS = frozenset(
    {
        F.silu, F.gelu, F.softplus, torch.sigmoid, torch.tanh, torch.exp, torch.erf, torch.sin,
        torch.cos, torch.rsqrt, torch.Tensor.sigmoid, torch.Tensor.tanh, torch.Tensor.exp,
        torch.Tensor.erf, torch.Tensor.sin, torch.Tensor.cos, torch.Tensor.rsqrt,
    }
)  # fmt: skip
"""Functions that torch approximates: in vectors, and what is left of a tensor otherwise."""


class RowMode(FormMode):
    """The mode in which a model's forward pass extends sequences.

    Args:
        weights: The packed weights.
        cache: What the sequences have so far.
        parts: The sequences of the rows, in their order.
    """

    def __init__(self, weights: PackedWeights, cache: KvCache, parts: Sequence[Part]) -> None:
        super().__init__()
        self._weights = weights
        self._attention = CachedAttention(cache, parts)
        self.forms = {
            "causal_attention": self._attention,
            "expert_product": weights.expert_product,
        }

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is F.linear:
            return self._weights.product(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        if func.__name__ in self.forms:
            return self.forms[func.__name__](*args, **(kwargs or {}))
        if func in _FUNCTIONS:
            return in_whole_vectors(func, *args, **(kwargs or {}))
        if func in _PRODUCTS:
            raise not_row_wise(f"it multiplies activations with {func.__name__}")
        return func(*args, **(kwargs or {}))

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> torch.Tensor:
        if attn_mask is not None or not is_causal:
            raise not_row_wise("its attention is not causal, or has a mask")
        return self._attention(query, key, value, scale=scale, dropout_p=dropout_p)


class Stage:
    """Extends sequences by tokens.

    Args:
        scores: The model.
        vocabulary: Its tokens.
        context: The most tokens of a sequence.
        memory: Where its sequences lease the keys and values of their tokens.
        token_bytes: What a token takes there.

    Raises:
        ConfigError: The model is not row-wise but for its attention, or this host computes a row
            with other bits in other company.
    """

    def __init__(
        self,
        scores: Scores,
        vocabulary: int,
        context: int,
        memory: SramLedger,
        token_bytes: int,
    ) -> None:
        self._scores = scores
        self._weights = PackedWeights()
        self._memory = memory
        self._token_bytes = token_bytes
        self.cache = KvCache()
        self._prove(vocabulary, min(context, PROBE_TOKENS))

    @torch.no_grad()
    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores that the parts ask for, one part after the other, (N, vocabulary).

        Raises:
            ApplianceResourceExhausted: The memory has no room for the tokens.
        """
        for part in parts:
            num_tokens = part.start + len(part.tokens)
            self._memory.lease(part.sequence, num_tokens * self._token_bytes)
        rows = self._rows(parts).split([len(part.tokens) for part in parts])
        asked = zip(rows, parts, strict=True)
        return torch.cat([each[len(each) - part.num_scores :] for each, part in asked])

    def copy(self, source: str, target: str, tokens: int) -> None:
        """Let a sequence begin with the first tokens of another.

        Raises:
            ApplianceResourceExhausted: The memory has no room for the tokens.
        """
        self._memory.lease(target, tokens * self._token_bytes)
        self.cache.copy(source, target, tokens)

    def forget(self, sequence: str) -> None:
        """Free what a sequence has, here and on the emulated wafers. Idempotent."""
        self.cache.forget(sequence)
        self._memory.lease(sequence, 0)

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
