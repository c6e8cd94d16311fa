"""A decoder over rows: tokens of any sequences, each of which has the same bits in any company.

A forward pass is row-wise but for attention. So the rows are the batch of a model, each a sequence
of one token at its own position; this mode lets its products be row-wise to the bit, and its
attention read the cache.

- ``linear`` of torch gives a row other bits with 1, with 2 to 3 and with more rows; oneDNN's
  product over a packed weight does not.
- A query row over masked keys has the same bits alone, in a batch, and for any padding to blocks,
  if torch's kernel runs in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from csnode.inference.cache import KvCache
from waferstream.core.errors import ConfigError
from waferstream.core.serving import Part

_PRODUCTS = frozenset(
    {
        torch.matmul, torch.bmm, torch.baddbmm, torch.einsum, torch.mm, torch.addmm,
        torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.bmm, torch.Tensor.mm,
    }
)  # fmt: skip
"""Products of activations, as attention without the fused kernel has them."""


class PackedWeights:
    """Weights as oneDNN packs them, which are made once."""

    def __init__(self) -> None:
        self._packed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # weight, packed; by id

    def product(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return ``F.linear(x, weight, bias)``, each row with the same bits for any others."""
        held = self._packed.get(id(weight))
        if held is None:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
            held = self._packed[id(weight)] = weight, packed
        rows = x.reshape(-1, x.shape[-1])
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, held[1], bias, "none", [], ""
        )
        return product.reshape(*x.shape[:-1], -1)


class RowMode(TorchFunctionMode):
    """The mode in which a model's forward pass extends sequences.

    Args:
        weights: The packed weights.
        cache: What the sequences have so far.
        parts: The sequences of the rows, in their order.
    """

    def __init__(self, weights: PackedWeights, cache: KvCache, parts: Sequence[Part]) -> None:
        super().__init__()
        self._weights = weights
        self._cache = cache
        self._parts = parts
        self.num_layers = 0
        """Layers of attention so far."""

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
        if func in _PRODUCTS:
            raise _not_row_wise(f"it multiplies activations with {func.__name__}")
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
        """Return the attention of rows (N, heads, 1, D) over all tokens of their sequences."""
        if attn_mask is not None or dropout_p or not is_causal:
            raise _not_row_wise("its attention is not causal, or has a mask or dropout")
        layer, first = self.num_layers, 0
        self.num_layers += 1
        mixed = torch.empty_like(query)
        for part in self._parts:
            rows = slice(first, first + len(part.tokens))
            keys, values = self._cache.extend(
                part.sequence, layer, part.start, key[rows, :, 0], value[rows, :, 0]
            )
            mixed[rows] = _mixed(query[rows], keys, values, part.start, scale)
            first = rows.stop
        return mixed


def _mixed(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, scale: float | None
) -> torch.Tensor:
    """Return the attention of rows (T, heads, 1, D) from a position on over keys (heads, S, D)."""
    num_rows = len(query)
    positions = torch.arange(start, start + num_rows)
    hidden = torch.arange(keys.shape[1]) > positions[:, None]
    mask = torch.zeros(hidden.shape, dtype=query.dtype).masked_fill(hidden, float("-inf"))
    with _one_thread():
        return F.scaled_dot_product_attention(
            query,
            keys.expand(num_rows, -1, -1, -1),
            values.expand(num_rows, -1, -1, -1),
            attn_mask=mask[:, None, None],
            scale=scale,
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in this thread alone; switching takes a microsecond."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _not_row_wise(why: str) -> ConfigError:
    return ConfigError(
        "the model cannot answer tokens",
        code="model-not-row-wise",
        value=why,
        rule="all is row-wise but causal attention by F.scaled_dot_product_attention",
        remedy="serve a decoder such as gpt2 or llama, without windows, biases or caps of scores",
    )
