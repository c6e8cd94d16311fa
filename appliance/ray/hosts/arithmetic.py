"""The bits that a host computes: a digest of torch's kernels on fixed values.

torch, MKL and oneDNN choose kernels by the kind of the processor. Those for another instruction set
add in another order, or round a function to the other neighbour, so two kinds of processors can
train the same model to different bits. Whether they do, only their results tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch.nn import functional

from waferstream.core.errors import ClusterJobInitError

_ROWS, _INNER, _COLUMNS = 128, 1024, 192  # MKL adds such a product in several parts
_DTYPES = (torch.float32, torch.bfloat16)


def arithmetic_digest() -> str:
    """Return the digest of products, attention, norms, functions, sums and an update.

    One thread computes, as on a CS node.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        digest = hashlib.sha256()
        for dtype in _DTYPES:
            for result in _results(dtype):
                digest.update(result.detach().float().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]
    finally:
        torch.set_num_threads(threads)


def compare_arithmetic(digests: Mapping[str, str], own: str) -> None:
    """Refuse hosts, by name, that compute other bits than the host ``own``.

    Raises:
        ClusterJobInitError: A digest differs.
    """
    for host, found in digests.items():
        if found != digests[own]:
            raise ClusterJobInitError(
                "a host computes other bits than the host of the program",
                code="host-computes-differently",
                where=host,
                value=f"kernels of torch on fixed values: {found}",
                rule=f"{own}: {digests[own]}",
                remedy="use hosts with one kind of processor, or let weights depend on which host "
                "computes what: runtime.mixed_processors: true",
            )


def _values(seed: int, *shape: int) -> torch.Tensor:
    """Return fp32 values in [-1, 1) that are the same on every host: integers over 2^15."""
    count = torch.Size(shape).numel()
    integers = (torch.arange(count, dtype=torch.int64) + seed) * 2654435761 % (1 << 32) >> 16
    return ((integers - (1 << 15)).to(torch.float32) / (1 << 15)).view(shape)


def _results(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield the results of kernels that a training step consists of."""
    left = _values(1, _ROWS, _INNER).to(dtype).requires_grad_()
    right = _values(2, _INNER, _COLUMNS).to(dtype).requires_grad_()
    product = left @ right
    normed = functional.layer_norm(product, (_COLUMNS,))
    heads = normed.view(1, _ROWS, 3, _COLUMNS // 3).transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    images = left.view(1, 8, _ROWS, _ROWS)
    kernels = right[:72].reshape(-1)[: 16 * 8 * 9].view(16, 8, 3, 3)
    outputs = (
        functional.gelu(product),
        functional.gelu(product, approximate="tanh"),
        functional.silu(product),
        functional.rms_norm(product, (_COLUMNS,)),
        functional.conv2d(images, kernels, padding=1),
        mixed,
        product.float().log_softmax(-1),
        left.float().abs().add(0.5).log().sqrt().rsqrt().tanh().sin(),
    )
    yield from (product, *outputs)
    total = torch.stack([output.float().sum() for output in outputs])
    yield total
    gradients = torch.autograd.grad(total.sum(), (left, right))
    yield from gradients
    if dtype == torch.float32:
        yield _updated(right.detach().clone(), gradients[1])


def _updated(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return a weight after one step of AdamW."""
    parameter = torch.nn.Parameter(weight)
    parameter.grad = gradient
    torch.optim.AdamW([parameter], lr=1e-3, fused=True).step()
    return parameter
