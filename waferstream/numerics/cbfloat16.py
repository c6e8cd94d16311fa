"""cbfloat16: 1 sign bit, 6 exponent bits, 9 mantissa bits.

Source of the layout: "Data Formats" in the documentation of the Cerebras software, release 1.6.1,
section "CB16 half-precision". It states no exponent bias, and neither infinities nor subnormal
numbers. Assumed is what IEEE 754 (section 3.4) gives for these widths: bias 31, subnormal numbers,
and the largest exponent for infinity and NaN. The vendor's default of ``max_loss_scale``, 2**31,
agrees: for float16 it is 2**15, which is 2**bias as well.

    smallest subnormal 2**-39, smallest normal 2**-30, largest number 2**32 - 2**22

torch has no such type. In a user's program float16 stands for it, as on the real machine; streams
carry 16-bit codes in int16; kernels hold the values, exactly, in fp32.
"""

from __future__ import annotations

import torch

PROXY = torch.float16
"""The type that stands for cbfloat16 in a user's program."""

CODE = torch.int16
"""The type of codes: sign, exponent and mantissa, from the highest bit to the lowest."""

_BIAS, _MANTISSA = 31, 9
_DROPPED = 23 - _MANTISSA  # mantissa bits that fp32 has more
_SMALLEST_NORMAL = 2.0 ** (1 - _BIAS)
_OVERFLOW = 2.0 ** (_BIAS + 1)
_FP32_EXPONENT = 0x7F800000
# An fp32 number times this has the exponent field and the mantissa of its code, in fp32's places.
_TO_FIELDS = 2.0 ** (_BIAS - 127)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return fp32 numbers rounded to cbfloat16: to nearest, ties to even, beyond the range inf.

    Adding and subtracting 1.5 * 2**(e + 14), for a number of exponent e, lets the rounding of fp32
    drop the 14 bits that cbfloat16 has not (Dekker 1971, "A floating-point technique for extending
    the available precision", section 3, splits a number so). All steps but the first are exact.
    """
    x = x.to(torch.float32)
    power = (x.view(torch.int32) & _FP32_EXPONENT).view(torch.float32)
    large = power.clamp_(_SMALLEST_NORMAL, _OVERFLOW).mul_(1.5 * 2.0**_DROPPED)
    near = (x + large).sub_(large)
    # Numbers of _OVERFLOW and more become infinite; the sign of zero was lost.
    return near.mul_(1 / _TO_FIELDS).mul_(_TO_FIELDS).copysign_(x)


def encode(x: torch.Tensor) -> torch.Tensor:
    """Return the codes of fp32 numbers, which are rounded."""
    bits = (rounded(x) * _TO_FIELDS).view(torch.int32)
    return ((bits >> 16) & 0x8000 | (bits >> _DROPPED) & 0x7FFF).to(CODE)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """Return the fp32 numbers of codes, without rounding."""
    # The sign is extended over the two exponent bits that fp32 has more: they are cleared.
    fields = (codes.to(torch.int32) << _DROPPED) & ~0x60000000
    numbers = fields.view(torch.float32).mul_(1 / _TO_FIELDS)
    if numbers.numel() and bool(numbers.abs().amax() >= _OVERFLOW):
        is_nan = numbers.abs() > _OVERFLOW
        numbers = (numbers / _TO_FIELDS) * _TO_FIELDS  # the largest exponent is infinity
        numbers.masked_fill_(is_nan, torch.nan)
    return numbers
