"""Kernels that an array of PEs runs for an op of a program, one after the other.

An aten op (``csnode.engine.kernels``) is made of kernels of the array (``csnode.engine.array``):
attention multiplies head by head, then sums along the rows. Cycles are counted, stated and shown by
kernel of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from csnode.engine.kernels import KERNELS
from csnode.engine.spec import KernelName
from waferstream.core.program.segment import OpWork

_EPSILON = 1e-5  # of norms; cycles do not depend on it


class KernelCall(NamedTuple):
    """Equal kernels of the array, one after the other.

    ``shape`` has the sizes of a product (rows, inner, columns), else those of the operand, whose
    last one lies along the rows. ``dtype`` is that of the operands; sums are fp32. ``density`` is
    the share of streamed weights that are not zero.
    """

    kernel: KernelName
    shape: tuple[int, ...]
    dtype: str = "float32"
    times: int = 1
    density: float = 1.0


def calls_of(work: OpWork, dtype: str, density: float = 1.0) -> tuple[KernelCall, ...]:
    """Return the kernels of the array that compute an op; none if torch computes it.

    Args:
        work: The op.
        dtype: Type of the operands of products outside of attention; all others are fp32.
        density: Share of streamed weights that are not zero.
    """
    calls = _CALLS.get(work.op) if work.op in KERNELS else None
    if calls is None:
        return ()
    return tuple(
        call._replace(density=density) if call.kernel == "streamed_product" else call
        for call in calls(work, dtype)
    )


def _product(work: OpWork, dtype: str) -> tuple[KernelCall, ...]:
    batch, *shape = work.shape
    if work.op == "bmm":
        return (KernelCall("resident_product", tuple(shape), dtype, batch),)
    kernel: KernelName = "streamed_product" if work.streams else "token_product"
    return (KernelCall(kernel, tuple(shape), dtype),)


def _attention(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    heads, queries, keys, size = work.shape
    return (
        KernelCall("resident_product", (queries, size, keys), times=heads),
        KernelCall("feature_sum", (heads * queries, keys)),
        KernelCall("resident_product", (queries, keys, size), times=heads),
    )


def _attention_backward(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    heads, queries, keys, size = work.shape
    products = (
        (queries, size, keys),  # the scores again
        (keys, queries, size),  # of v
        (queries, size, keys),  # of the weights
        (queries, keys, size),  # of q
        (keys, queries, size),  # of k
    )
    calls = [KernelCall("resident_product", shape, times=heads) for shape in products]
    return (*calls[:3], KernelCall("feature_sum", (heads * queries, size)), *calls[3:])


def _norm(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    kernel: KernelName = "rms_norm" if "rms" in work.op else "layer_norm"
    return (KernelCall(kernel, _tokens(work.shape)),)


def _norm_backward(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    tokens = _tokens(work.shape)
    if "rms" in work.op:
        return KernelCall("feature_sum", tokens), KernelCall("token_sum", tokens)
    return KernelCall("feature_sum", (2, *tokens)), KernelCall("token_sum", tokens, times=2)


def _softmax(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    return (KernelCall("softmax", _tokens(work.shape)),)


def _feature_sum(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    return (KernelCall("feature_sum", _tokens(work.shape)),)


def _reduction(work: OpWork, _: str) -> tuple[KernelCall, ...]:
    """Return the sums over features, over tokens, or over both; ``flops`` are the results.

    Where as many tokens as features leave both possible, a sum is taken as one over tokens, as
    gradients of biases are, and a mean as one over features, as in a norm.
    """
    tokens, features = _tokens(work.shape)
    kernels: dict[KernelName, int] = {"token_sum": features, "feature_sum": tokens}
    if work.op == "mean":
        kernels = dict(reversed(kernels.items()))
    for kernel, results in kernels.items():
        if work.flops == results:
            return (KernelCall(kernel, (tokens, features)),)
    return KernelCall("feature_sum", (tokens, features)), KernelCall("token_sum", (tokens, 1))


def _tokens(shape: Sequence[int]) -> tuple[int, int]:
    return prod(shape[:-1]), shape[-1] if shape else 1


FLASH = "_scaled_dot_product_flash_attention_for_cpu"
_CALLS: dict[str, Callable[[OpWork, str], tuple[KernelCall, ...]]] = {
    **dict.fromkeys(("mm", "addmm", "bmm"), _product),
    **dict.fromkeys(("sum", "mean"), _reduction),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), _norm),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), _norm_backward),
    "_softmax": _softmax,
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"), _feature_sum
    ),
    FLASH: _attention,
    f"{FLASH}_backward": _attention_backward,
}


def run_call(array: Any, call: KernelCall) -> None:
    """Run a kernel once on an array (``WaferArray``), on random operands, seeded."""
    generator = torch.Generator().manual_seed(0)
    operands = [
        torch.randn(*shape, generator=generator).to(getattr(torch, call.dtype))
        for shape in _operand_shapes(call)
    ]
    if call.density < 1:  # of streamed weights
        present = torch.rand(operands[1].shape, generator=generator) < call.density
        operands[1] = operands[1] * present
    options = (_EPSILON,) if call.kernel.endswith("_norm") else ()
    getattr(array, call.kernel)(*operands, *options)


def _operand_shapes(call: KernelCall) -> list[tuple[int, ...]]:
    if not call.kernel.endswith("_product"):
        return [call.shape]
    rows, inner, columns = call.shape
    return [(rows, inner), (inner, columns)]
