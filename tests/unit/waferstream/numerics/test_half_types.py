"""Stochastic rounding: one of two neighbours, by distance, and what it does at the ends."""

from __future__ import annotations

import math

import pytest
import torch

from waferstream.numerics.cbfloat16 import CODE, decode
from waferstream.numerics.half_types import nearest, nearest_, stochastic, stochastic_

HALVES = ("bfloat16", "float16", "cbfloat16")
LARGEST = {"bfloat16": 2.0**128 - 2.0**120, "float16": 65504.0, "cbfloat16": 2.0**32 - 2.0**22}
SMALLEST = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "cbfloat16": 2.0**-39}


def numbers_of(half: str) -> torch.Tensor:
    """Return all numbers of a type, in the order of their codes."""
    codes = torch.arange(1 << 16, dtype=torch.int32).to(CODE)
    if half == "cbfloat16":
        return decode(codes)
    return codes.view(torch.bfloat16 if half == "bfloat16" else torch.float16).float()


def draws(x: torch.Tensor, half: str, count: int) -> torch.Tensor:
    """Return roundings of the same numbers by several keys, one in each row."""
    return torch.stack([stochastic(x, half, key, 0) for key in range(count)])


@pytest.mark.parametrize("half", HALVES)
def test_numbers_of_the_type_stay_as_they_are(half: str) -> None:
    """Zeros and infinities keep their sign, and NaN stays NaN, for any random bits."""
    numbers = numbers_of(half)
    for key in range(4):
        found = stochastic(numbers, half, key, 0)
        assert torch.equal(found.isnan(), numbers.isnan())
        is_number = ~numbers.isnan()
        assert torch.equal(found[is_number], numbers[is_number])
        assert torch.equal(found[is_number].signbit(), numbers[is_number].signbit())


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_all_others_become_one_of_their_two_neighbours(half: str, sign: float) -> None:
    """Between any two neighbours, subnormal ones too, both are drawn."""
    numbers = numbers_of(half)
    numbers = numbers[~numbers.signbit() & numbers.isfinite()]
    low, high = numbers[:-1], numbers[1:]
    found = draws(sign * (low + (high - low) / 2), half, 40) * sign
    assert bool(((found == low) | (found == high)).all())
    assert bool(((found == low).any(dim=0) & (found == high).any(dim=0)).all())


@pytest.mark.parametrize("half", HALVES)
def test_mean_over_many_keys_is_the_number(half: str) -> None:
    """Within five standard deviations of a mean of 600 draws."""
    exponents = torch.linspace(-13, 13, 500)
    x = torch.exp2(exponents).mul_(torch.where(torch.arange(500) % 2 == 0, 1.0, -1.0))
    x[:100] *= SMALLEST[half] * 2**10 if half != "bfloat16" else 1.0  # subnormal numbers
    numbers = numbers_of(half)
    numbers = numbers[numbers.isfinite()].unique()
    upper = torch.searchsorted(numbers, x)
    step = (numbers[upper] - numbers[upper - 1]).double()
    share = (x.double() - numbers[upper - 1]) / step
    deviation = (share * (1 - share) / 600).sqrt()
    errors = (draws(x, half, 600).double() - x.double()) / step
    assert bool((errors.mean(dim=0).abs() <= 5 * deviation + 1e-9).all())
    assert errors.mean().abs().item() < 5 * deviation.square().mean().sqrt().item() / 500**0.5


@pytest.mark.parametrize("half", HALVES)
def test_probability_is_the_distance_from_the_lower_neighbour(half: str) -> None:
    """A quarter of the way up, a quarter of the draws are the upper neighbour."""
    step = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "cbfloat16": 2.0**-9}[half]
    for share in (1 / 1024, 0.25, 0.75):
        found = stochastic(torch.full((200_000,), 1 + share * step), half, 3, 0)
        up = (found == 1 + step).double().mean().item()
        assert up == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 200_000))


@pytest.mark.parametrize("half", HALVES)
def test_numbers_beyond_the_largest_become_infinite_by_chance(half: str) -> None:
    """A quarter of the way to the next power of two; from there on, always."""
    largest = LARGEST[half]
    step = 2.0 ** (math.frexp(largest)[1]) - largest
    x = torch.full((40_000,), largest + step / 4)
    found = stochastic(x, half, 0, 0)
    assert set(found.unique().tolist()) == {largest, math.inf}
    assert found.isinf().double().mean().item() == pytest.approx(0.25, abs=0.02)
    beyond = torch.tensor([3.4e38, -3.4e38, math.inf, -math.inf])
    if half != "bfloat16":
        ends = torch.tensor([math.inf, -math.inf] * 2)
        assert torch.equal(stochastic(beyond, half, 1, 0), ends)


@pytest.mark.parametrize("half", HALVES)
def test_nan_with_any_payload_stays_nan(half: str) -> None:
    """Also where a carry would leave the bits of NaN, or the lower bits are all it has."""
    bits = torch.tensor([0x7FFFFFFF, 0x7F800001, 0x7FC00000, -1], dtype=torch.int32)
    for key in range(8):
        assert bool(stochastic(bits.view(torch.float32), half, key, 0).isnan().all())


def test_numbers_far_below_the_smallest_round_to_zero() -> None:
    """Sign included; a number just above half of the smallest one becomes it half of the time."""
    found = stochastic(torch.tensor([-1e-45, 1e-45]), "float16", 0, 0)
    assert found.tolist() == [0.0, 0.0]
    assert found.signbit().tolist() == [True, False]
    share = stochastic(torch.full((10_000,), 2.0**-25), "float16", 0, 0).ne(0).double().mean()
    assert share.item() == pytest.approx(0.5, abs=0.03)


def test_draws_depend_on_key_place_and_element_alone() -> None:
    """Not on strides, nor on what was drawn before; strides are kept."""
    x = torch.rand(6, 10, generator=torch.Generator().manual_seed(0))
    found = stochastic(x, "bfloat16", 5, 2)
    assert torch.equal(stochastic(x, "bfloat16", 5, 2), found)
    transposed = x.t().contiguous().t()
    again = stochastic(transposed, "bfloat16", 5, 2)
    assert torch.equal(again, found)
    assert again.stride() == transposed.stride()
    assert not torch.equal(stochastic(x, "bfloat16", 6, 2), found)
    assert not torch.equal(stochastic(x, "bfloat16", 5, 3), found)
    assert stochastic(torch.tensor(0.1), "bfloat16", 0, 0).ndim == 0
    assert stochastic(torch.empty(0, 3), "float16", 0, 0).shape == (0, 3)


def test_global_generator_is_neither_read_nor_advanced() -> None:
    state = torch.get_rng_state()
    stochastic(torch.rand(3, generator=torch.Generator().manual_seed(0)), "float16", 0, 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_writes_in_place_reach_views() -> None:
    """Both roundings change the given elements, and no others."""
    for is_stochastic in (False, True):
        table = torch.full((2, 3), 1.0009765625)
        if is_stochastic:
            stochastic_(table[:, 1:], "cbfloat16", 0, 0)
        else:
            nearest_(table[:, 1:], "cbfloat16")
        assert bool((table[:, 0] == 1.0009765625).all())
        assert torch.equal(nearest(table[:, 1:], "cbfloat16"), table[:, 1:])
