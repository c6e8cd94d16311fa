"""Forms by row of what is not row-wise, or not to the bit: products, experts, attention.

A row has the same bits in each of them, whatever other rows there are.

- ``linear`` of torch gives a row other bits with 1, with 2 to 3 and with more rows; oneDNN's
  product over a packed weight does not.
- Functions such as ``silu`` give the elements after the last whole vector of a tensor other bits,
  so rows are padded to whole vectors.
- A query row over masked keys has the same bits alone, in a batch, and for any padding to blocks,
  if torch's fused kernel runs in one thread; so have the products of a single row with its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from csnode.inference.cache import KvCache, padded
from csnode.lanes import single_threaded
from waferstream.core.errors import ConfigError
from waferstream.core.serving import Part

_LANES = 64
"""A multiple of the elements of a vector, on any processor of torch."""


class PackedWeights:
    """Weights as oneDNN packs them, which are made once."""

    def __init__(self) -> None:
        self._packed: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        # weight, which keeps its id, and what is packed; by id and expert

    def product(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return ``F.linear(x, weight, bias)``, each row with the same bits for any others."""
        product = _product(x.reshape(-1, x.shape[-1]), self._of(weight), bias)
        return product.reshape(*x.shape[:-1], -1)

    def expert_product(
        self, x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        """Return rows (N, inputs), sorted by expert, times the weight (E, outputs, inputs) of each.

        ``ends`` is the end of each expert's rows, (E,).
        """
        found = x.new_empty(len(x), weight.shape[1])
        start = 0
        for expert, end in enumerate(ends.tolist()):
            if end > start:
                found[start:end] = _product(x[start:end], self._of(weight, expert), None)
            start = end
        return found

    def _of(self, weight: torch.Tensor, expert: int = 0) -> torch.Tensor:
        held = self._packed.get((id(weight), expert))
        if held is None:
            matrix = weight.detach()[expert] if weight.ndim > 2 else weight.detach()
            held = weight, torch.ops.mkldnn._reorder_linear_weight(matrix)
            self._packed[id(weight), expert] = held
        return held[1]


def _product(rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return product


class CachedAttention:
    """Attention of the rows of some sequences over the keys and values of all their tokens.

    Args:
        cache: What the sequences have so far.
        parts: The sequences of the rows, in their order.
    """

    def __init__(self, cache: KvCache, parts: Sequence[Part]) -> None:
        self._cache = cache
        self._parts = parts
        self._masks: dict[tuple[int | None, int], list[torch.Tensor]] = {}
        self.num_layers = 0
        """Layers of attention so far."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        first_tokens: int = 0,
        cap: float | None = None,
        dropout_p: float = 0.0,
    ) -> torch.Tensor:
        """Return the attention of rows (N, heads, 1, D) of the next layer.

        Args:
            query: Of each row.
            key: Likewise.
            value: Likewise.
            scale: Of the scores; by default the inverse root of D.
            window: Tokens that a row reads, its own included; by default all before it.
            first_tokens: First ones of a sequence, which it reads besides.
            cap: What scores approach by tanh.
            dropout_p: No rate but 0 is a function of the row.

        Raises:
            ConfigError: There is dropout.
        """
        if dropout_p:
            raise not_row_wise("its attention has dropout")
        layer, first = self.num_layers, 0
        self.num_layers += 1
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        mixed = torch.empty_like(query)
        for part, mask in zip(self._parts, self._masks_of(window, first_tokens), strict=True):
            rows = slice(first, first + len(part.tokens))
            keys, values = self._cache.extend(
                part.sequence, layer, part.start, key[rows, :, 0], value[rows, :, 0]
            )
            with single_threaded():
                mixed[rows] = _mixed(query[rows], keys, values, mask.to(query.dtype), scale, cap)
            first = rows.stop
        return mixed

    def _masks_of(self, window: int | None, first_tokens: int) -> list[torch.Tensor]:
        """Return the term of scores of each part's rows, which layers alike share."""
        key = window, first_tokens
        if key not in self._masks:
            self._masks[key] = [_mask_of(part, window, first_tokens) for part in self._parts]
        return self._masks[key]


def _mask_of(part: Part, window: int | None, first_tokens: int) -> torch.Tensor:
    """Return the term of scores of a part's rows over the blocks of its sequence, (T, 1, 1, S)."""
    end = part.start + len(part.tokens)
    keys, rows = torch.arange(padded(end)), torch.arange(part.start, end)[:, None]
    hidden = keys > rows
    if window is not None:
        hidden |= (keys <= rows - window) & (keys >= first_tokens)
    return torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))[:, None, None]


def _mixed(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    cap: float | None,
) -> torch.Tensor:
    """Return the attention of rows (T, heads, 1, D) over (heads, S, D)."""
    if cap is not None:
        rows = zip(query, mask, strict=True)
        return torch.stack([_capped(row * scale, keys, values, term, cap) for row, term in rows])
    return F.scaled_dot_product_attention(
        query,
        keys.expand(len(mask), -1, -1, -1),
        values.expand(len(mask), -1, -1, -1),
        attn_mask=mask,
        scale=scale,
    )


def _capped(
    row: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, term: torch.Tensor, cap: float
) -> torch.Tensor:
    """Return the attention of a scaled row (heads, 1, D) whose scores have a cap."""
    scores = torch.bmm(row, keys.transpose(1, 2)).float()
    weights = (cap * torch.tanh(scores / cap) + term).softmax(-1)
    return torch.bmm(weights.to(values.dtype), values)


def in_whole_vectors(
    func: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Return a function of each element, none of which is in the rest after the last vector.

    Where that rest begins depends on the number of rows and threads.
    """
    width = x.shape[-1]
    with single_threaded():
        found: torch.Tensor = func(F.pad(x, (0, -width % _LANES)), *args, **kwargs)
    return found[..., :width]


def not_row_wise(why: str) -> ConfigError:
    """Return the error for a model that relates tokens in another way."""
    return ConfigError(
        "the model cannot answer tokens",
        code="model-not-row-wise",
        value=why,
        rule="all is row-wise but causal attention by F.scaled_dot_product_attention",
        remedy="serve a decoder such as gpt2 or llama, without biases of scores",
    )
