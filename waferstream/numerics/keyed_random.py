"""Random kernels with an explicit key: the same key and position give the same bits everywhere.

Ones and zeros of one probability, those of dropout, are computed where they are needed: element i
is bit pattern i of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195) from the
key, 32 bits each, by ops on integers that every device has. All other numbers are drawn by torch on
the processor, and copied to where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import fx

from waferstream.core.rng import stream_key

KEY_INPUT = "random_key"
"""Name of the graph input that carries a micro-batch's key."""

BATCH_KEY_INPUT = "random_key_of_batch"
"""Name of the graph input that carries the batch's key: that of its first micro-batch."""


Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _random(kernel: Kernel) -> Kernel:
    """Mark a kernel as an op of kind random (waferstream.compiler.ops)."""
    kernel.waferstream_kind = "random"  # type: ignore[attr-defined]
    return kernel


def _signed(word: int) -> int:
    """Return an unsigned word of 64 bits as int64 holds it."""
    return word - (1 << 64) if word >> 63 else word


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIXING = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, None))
"""The step of SplitMix64, and its rounds: bits by which a word is shifted, and a factor behind."""

_PIECE = 1 << 14
"""Words that the processor draws at a time: they fit into its cache."""

_DEVICE_PIECE = 1 << 22
"""Words that another device draws at a time, in 64 MiB."""


def _words(key: int, start: int, stop: int, device: torch.device) -> torch.Tensor:
    """Return 64-bit words ``start`` to ``stop`` of the sequence of a key, int64."""
    words = torch.arange(start + 1, stop + 1, dtype=torch.int64, device=device)
    words.mul_(_GAMMA).add_(key)
    shifted = torch.empty_like(words)
    for shift, factor in _MIXING:
        torch.bitwise_right_shift(words, shift, out=shifted)
        words.bitwise_xor_(shifted.bitwise_and_((1 << (64 - shift)) - 1))  # without the sign
        if factor is not None:
            words.mul_(factor)
    return words


def _draw_ones(x: torch.Tensor, key: int, p: float) -> torch.Tensor:
    """Overwrite a tensor with ones (probability ``p``, to 2^-32) and zeros, in logical order."""
    if not 0 <= p <= 1:
        raise ValueError(f"a probability must be between 0 and 1, but got {p}")
    below = round(p * 2**32) - 2**31
    if below == 2**31:  # which is no int32
        return x.fill_(1)
    num_words = (x.numel() + 1) // 2
    size = _PIECE if x.device.type == "cpu" else _DEVICE_PIECE
    ones = [
        _words(key, start, min(start + size, num_words), x.device).view(torch.int32) < below
        for start in range(0, num_words, size)
    ]
    return x.copy_(torch.cat(ones)[: x.numel()].view(x.shape)) if ones else x


def _generator(key: int, position: int) -> torch.Generator:
    return torch.Generator().manual_seed(stream_key(key, position))


def _drawn_into(x: torch.Tensor, draw: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Overwrite a tensor with numbers that ``draw`` writes into one of the processor."""
    if x.device.type == "cpu":
        return draw(x)
    return x.copy_(draw(torch.empty_like(x, device="cpu")))


def _drawn(draw: Callable[..., torch.Tensor], *args: Any, **options: Any) -> torch.Tensor:
    """Return numbers that ``draw`` draws on the processor, on the device of the options."""
    device = options.pop("device", None)
    drawn = draw(*args, **options)
    return drawn if device is None else drawn.to(device)


def _overwriting(argument: int) -> Callable[[Kernel], Kernel]:
    """Mark a random kernel that overwrites its argument at a position."""

    def mark(kernel: Kernel) -> Kernel:
        kernel.waferstream_overwrites = argument  # type: ignore[attr-defined]
        # The overwritten tensor may be read under another name.
        fx.has_side_effect(kernel)
        return _random(kernel)

    return mark


@_overwriting(2)
def bernoulli_(key: int, position: int, x: torch.Tensor, p: float = 0.5) -> torch.Tensor:
    """Run ``x.bernoulli_(p)``: overwrite ``x`` with ones (probability ``p``) and zeros."""
    return _draw_ones(x, stream_key(key, position), p)


@_random
def bernoulli(key: int, position: int, x: torch.Tensor, p: float | None = None) -> torch.Tensor:
    """Run ``torch.bernoulli``: one draw per element, with probability ``p`` or else ``x``."""
    if p is None:
        return torch.bernoulli(x.cpu(), generator=_generator(key, position)).to(x.device)
    return bernoulli_(key, position, torch.empty_like(x), p)


@_random
def native_dropout(
    key: int, position: int, x: torch.Tensor, p: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run ``aten.native_dropout``: return the scaled input and the mask of kept elements."""
    if not train or p == 0.0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    keep = bernoulli_(key, position, torch.empty_like(x), 1.0 - p).bool()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    return x * keep * scale, keep


@_random
def rand_like(key: int, position: int, x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run ``torch.rand_like``: uniform on [0, 1)."""
    return uniform_(key, position, torch.empty_like(x, **options))


@_random
def randn_like(key: int, position: int, x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run ``torch.randn_like``: standard normal."""
    return normal_(key, position, torch.empty_like(x, **options))


@_random
def rand(key: int, position: int, size: Sequence[int], **options: Any) -> torch.Tensor:
    """Run ``torch.rand``: uniform on [0, 1)."""
    return _drawn(torch.rand, size, generator=_generator(key, position), **options)


@_random
def randn(key: int, position: int, size: Sequence[int], **options: Any) -> torch.Tensor:
    """Run ``torch.randn``: standard normal."""
    return _drawn(torch.randn, size, generator=_generator(key, position), **options)


@_random
def randint(key: int, position: int, *bounds_and_size: Any, **options: Any) -> torch.Tensor:
    """Run ``torch.randint``: uniform integers of [0, high) or [low, high)."""
    *bounds, size = bounds_and_size
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    generator = _generator(key, position)
    return _drawn(torch.randint, low, high, size, generator=generator, **options)


@_random
def randperm(key: int, position: int, n: int, **options: Any) -> torch.Tensor:
    """Run ``torch.randperm``: a permutation of n numbers."""
    return _drawn(torch.randperm, n, generator=_generator(key, position), **options)


@_random
def multinomial(
    key: int, position: int, weights: torch.Tensor, num_samples: int, replacement: bool = False
) -> torch.Tensor:
    """Run ``torch.multinomial``: indices drawn with probabilities in proportion to weights."""
    generator = _generator(key, position)
    drawn = torch.multinomial(weights.cpu(), num_samples, replacement, generator=generator)
    return drawn.to(weights.device)


@_random
def normal(key: int, position: int, *moments_and_size: Any, **options: Any) -> torch.Tensor:
    """Run ``torch.normal``: means and deviations as tensors or, with a size, as numbers."""
    arguments = []
    for each in moments_and_size:
        if isinstance(each, torch.Tensor):
            options.setdefault("device", each.device)
        arguments.append(each.cpu() if isinstance(each, torch.Tensor) else each)
    generator = _generator(key, position)
    return _drawn(torch.ops.aten.normal, *arguments, generator=generator, **options)


@_overwriting(2)
def normal_(
    key: int, position: int, x: torch.Tensor, mean: float = 0.0, std: float = 1.0
) -> torch.Tensor:
    """Run ``x.normal_(mean, std)``."""
    return _drawn_into(x, lambda t: t.normal_(mean, std, generator=_generator(key, position)))


@_overwriting(2)
def uniform_(
    key: int, position: int, x: torch.Tensor, low: float = 0.0, high: float = 1.0
) -> torch.Tensor:
    """Run ``x.uniform_(low, high)``."""
    return _drawn_into(x, lambda t: t.uniform_(low, high, generator=_generator(key, position)))


@_overwriting(2)
def exponential_(key: int, position: int, x: torch.Tensor, rate: float = 1.0) -> torch.Tensor:
    """Run ``x.exponential_(rate)``."""
    return _drawn_into(x, lambda t: t.exponential_(rate, generator=_generator(key, position)))


@_overwriting(3)
def rrelu_with_noise(
    key: int, position: int, x: torch.Tensor, noise: torch.Tensor, *bounds_and_mode: Any
) -> torch.Tensor:
    """Run ``aten.rrelu_with_noise``: ``noise`` gets the drawn slopes, 1 where ``x`` is positive."""
    drawn = noise.cpu()  # itself, where it is on the processor
    sloped: torch.Tensor = torch.ops.aten.rrelu_with_noise(
        x.cpu(), drawn, *bounds_and_mode, generator=_generator(key, position)
    )
    if drawn is not noise:
        noise.copy_(drawn)
    return sloped.to(x.device)


KERNELS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel
    for kernel in (
        *(bernoulli, bernoulli_, exponential_, multinomial, native_dropout, normal, normal_),
        *(rand, rand_like, randint, randn, randn_like, randperm, rrelu_with_noise, uniform_),
    )
}
