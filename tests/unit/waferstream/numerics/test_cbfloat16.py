"""cbfloat16: all 65,536 codes, and rounding between any two neighbours."""

from __future__ import annotations

import math

import pytest
import torch

from waferstream.numerics.cbfloat16 import CODE, decode, encode, rounded


def value_of(code: int) -> float:
    """Return the number of a code by the definition of the format."""
    sign = -1.0 if code >> 15 else 1.0
    exponent, mantissa = (code >> 9) & 63, code & 511
    if exponent == 63:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, -39)
    return sign * math.ldexp(512 + mantissa, exponent - 31 - 9)


CODES = torch.arange(1 << 16, dtype=torch.int32).to(CODE)
VALUES = torch.tensor([value_of(code) for code in range(1 << 16)], dtype=torch.float64)


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether numbers are equal, with their signs; NaN is equal to NaN."""
    is_nan = expected.isnan()
    equal = torch.equal(found[~is_nan].double(), expected[~is_nan].double())
    signs = torch.equal(found[~is_nan].signbit(), expected[~is_nan].signbit())
    return equal and signs and bool(found[is_nan].isnan().all())


def test_every_code_decodes_to_its_number() -> None:
    assert same(decode(CODES), VALUES)
    assert same(decode(CODES[:100]), VALUES[:100])  # without infinity and NaN


def test_every_number_encodes_to_its_code() -> None:
    """All codes of NaN become NaNs, any other code itself."""
    is_nan = VALUES.isnan()
    codes = encode(VALUES.float())
    assert torch.equal(codes[~is_nan], CODES[~is_nan])
    assert bool(decode(codes[is_nan]).isnan().all())


def test_representable_numbers_stay_as_they_are() -> None:
    assert same(rounded(VALUES.float()), VALUES)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_between_two_neighbours_round_to_the_nearest(sign: float) -> None:
    """At the midpoint the even code wins; one fp32 step beside it, the nearer one."""
    finite = VALUES[: 63 << 9]
    low, high = finite, torch.cat([finite[1:], torch.tensor([2.0**32], dtype=torch.float64)])
    infinity = torch.tensor([math.inf], dtype=torch.float64)
    above = torch.cat([finite[1:], infinity])
    middle = ((low + high) / 2).float()
    assert torch.equal(middle.double(), (low + high) / 2)
    even = torch.where(torch.arange(len(low)) % 2 == 0, low, above)
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    assert same(rounded(sign * middle), sign * even)
    assert same(rounded(sign * torch.nextafter(middle, down)), sign * low)
    assert same(rounded(sign * torch.nextafter(middle, up)), sign * above)
    assert same(decode(encode(sign * middle)), sign * even)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1e-45, 0.0),
        (-1e-45, -0.0),
        (3.4e38, math.inf),
        (-3.4e38, -math.inf),
        (math.inf, math.inf),
        (math.nan, math.nan),
        (1e-12, 2.0**-39),  # above half of the smallest number
        (2.0**-40, 0.0),
    ],
)
def test_numbers_at_the_ends_of_fp32(x: float, expected: float) -> None:
    assert same(rounded(torch.tensor([x])), torch.tensor([expected]))


def test_other_types_are_rounded() -> None:
    half = torch.tensor([1.0009765625], dtype=torch.float16)  # 2**-10 above 1: a tie
    assert rounded(half).item() == 1.0
