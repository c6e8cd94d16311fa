"""Random kernels with an explicit key: the same key and position give the same bits everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import fx

from wsc.core.rng import stream_key

KEY_INPUT = "random_key"
"""Name of the graph input that carries a micro-batch's key."""


Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _random(kernel: Kernel) -> Kernel:
    """Mark a kernel as an op of kind random (wsc.compiler.ops)."""
    kernel.waferstream_kind = "random"  # type: ignore[attr-defined]
    return kernel


def _generator(key: int, position: int) -> torch.Generator:
    return torch.Generator().manual_seed(stream_key(key, position))


@fx.has_side_effect  # the overwritten tensor may be read under another name
@_random
def bernoulli_(key: int, position: int, x: torch.Tensor, p: float = 0.5) -> torch.Tensor:
    """Run ``x.bernoulli_(p)``: overwrite ``x`` with ones (probability ``p``) and zeros."""
    return x.bernoulli_(p, generator=_generator(key, position))


@_random
def bernoulli(key: int, position: int, x: torch.Tensor, p: float | None = None) -> torch.Tensor:
    """Run ``torch.bernoulli``: one draw per element, with probability ``p`` or else ``x``."""
    generator = _generator(key, position)
    if p is None:
        return torch.bernoulli(x, generator=generator)
    return torch.empty_like(x).bernoulli_(p, generator=generator)


@_random
def native_dropout(
    key: int, position: int, x: torch.Tensor, p: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run ``aten.native_dropout``: return the scaled input and the mask of kept elements."""
    if not train or p == 0.0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    keep = torch.empty_like(x).bernoulli_(1.0 - p, generator=_generator(key, position)).bool()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    return x * keep * scale, keep


@_random
def rand_like(key: int, position: int, x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run ``torch.rand_like``: uniform on [0, 1)."""
    return torch.empty_like(x, **options).uniform_(generator=_generator(key, position))


@_random
def randn_like(key: int, position: int, x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run ``torch.randn_like``: standard normal."""
    return torch.empty_like(x, **options).normal_(generator=_generator(key, position))


KERNELS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel
    for kernel in (bernoulli_, bernoulli, native_dropout, rand_like, randn_like)
}
