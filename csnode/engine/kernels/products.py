"""Products: of streamed weights, of activations over tokens, and of resident operands."""

from __future__ import annotations

from csnode.engine.array import WaferArray
from csnode.engine.kernels.operands import Tensor, check_type

Streams = tuple[bool, bool]
"""Which of the two operands of a product are streamed weights."""


def mm(array: WaferArray, streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return a product: of streamed weights, or a sum over tokens where no weight streams."""
    return _product(array, streams, left, right).to(left.dtype).contiguous()


def addmm(
    array: WaferArray,
    streams: Streams,
    addend: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    """Return ``beta * addend + alpha * left @ right``, rounded once behind the fp32 sums."""
    product = _product(array, streams, left, right)
    return (addend.float() * beta + product * alpha).to(left.dtype).contiguous()


def _product(array: WaferArray, streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return the fp32 product of operands of which some stream."""
    check_type(left)
    if streams[1]:
        return array.streamed_product(left, right)
    if streams[0]:
        return array.streamed_product(right.T, left.T).T
    return array.token_product(left, right)


def bmm(array: WaferArray, _streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return a product for each of a batch, all operands resident."""
    check_type(left)
    return array.resident_product(left, right).to(left.dtype)
