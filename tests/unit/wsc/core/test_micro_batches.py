"""Micro-batch policies, held against their definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.errors import raises
from wsc.core.errors import ConfigError
from wsc.core.micro_batches import (
    FILL_WAFER,
    FLAG,
    Explore,
    MicroBatchPolicy,
    SizeRange,
    check_batch,
    explored_sizes,
    largest_divisor,
    rounds_of,
    share_of,
)

sizes = st.integers(1, 300)
AUTO = MicroBatchPolicy("auto")


@given(sizes, st.integers(1, 8), st.integers(1, 300))
def test_auto_is_the_same_on_up_to_eight_systems(
    batch_size: int, num_csx: int, largest: int
) -> None:
    """On any wafer, in a run and in a simulation; and every system has work."""
    if num_csx > batch_size:
        return
    size = AUTO.size(batch_size, num_csx, largest)
    assert batch_size % size == 0
    assert size <= largest
    assert batch_size // size >= min(batch_size, 8)
    assert size == AUTO.size(batch_size, num_csx, largest, simulated=True)
    if batch_size >= 8:
        assert size == AUTO.size(batch_size, 1, largest)


@given(sizes, st.integers(1, 40), st.none() | st.integers(0, 300))
def test_auto_is_the_largest_size_allowed(
    batch_size: int, num_csx: int, largest: int | None
) -> None:
    """No larger divisor leaves enough micro-batches and fits the wafer."""
    if num_csx > batch_size:
        return
    size = AUTO.size(batch_size, num_csx, largest)
    wanted = min(batch_size, max(8, num_csx))
    limit = batch_size if largest is None else largest
    larger = [d for d in range(size + 1, limit + 1) if batch_size % d == 0]
    assert all(batch_size // d < wanted for d in larger)


@given(sizes, st.integers(1, 40), sizes)
def test_fill_wafer_in_a_run_is_the_largest_divisor(
    batch_size: int, num_csx: int, largest: int
) -> None:
    """Of those that fit the wafer and leave a micro-batch for every system."""
    if num_csx > batch_size:
        return
    size = FILL_WAFER.size(batch_size, num_csx, largest)
    allowed = [d for d in range(1, min(largest, batch_size // num_csx) + 1) if batch_size % d == 0]
    assert size == max(allowed)
    check_batch(batch_size, size, num_csx)


@given(num_csx=sizes, more=st.integers(0, 5000), largest=st.integers(1, 5000))
def test_fill_wafer_in_a_simulation_takes_the_fewest_rounds(
    num_csx: int, more: int, largest: int
) -> None:
    """No larger size saves a round within the limit, and no smaller one keeps the rounds."""
    batch_size = num_csx + more
    size = FILL_WAFER.size(batch_size, num_csx, largest, simulated=True)
    rounds = rounds_of(batch_size, num_csx, size)
    assert 1 <= size <= largest
    assert rounds == rounds_of(batch_size, num_csx, largest)
    assert size == 1 or rounds_of(batch_size, num_csx, size - 1) > rounds


def test_fill_wafer_takes_the_published_sizes() -> None:
    """A share of 12 samples can be cut into 12, 6, 4, 3, 2 or 1 and nothing between."""
    found = [FILL_WAFER.size(24, 2, largest, simulated=True) for largest in (99, 11, 5, 3, 2, 1)]
    assert found == [12, 6, 4, 3, 2, 1]
    assert share_of(25, 2) == 13


@pytest.mark.parametrize(
    ("batch_size", "requested", "num_csx", "size"),
    [(64, 4, 2, 4), (64, 64, 1, 64), (12, None, 4, 3), (12, None, 1, 12), (5, "auto", 2, 1)],
)
def test_size_of_small_batches(batch_size: int, requested: Any, num_csx: int, size: int) -> None:
    """Cases worked out by hand; None gives every system one micro-batch."""
    assert MicroBatchPolicy(requested).size(batch_size, num_csx) == size


def test_none_cuts_any_share_in_a_simulation() -> None:
    """The last system may have fewer samples there."""
    none = MicroBatchPolicy(None)
    assert none.size(10, 4, simulated=True) == 3
    none.check(10, 4, simulated=True)
    with raises(ConfigError, "batch-not-divisible"):
        none.check(10, 4)


@pytest.mark.parametrize(
    ("requested", "name"),
    [
        (4, "integer"),
        ("auto", "auto"),
        ("fill_wafer", "fill_wafer"),
        (None, "none"),
        (Explore(), "explore"),
    ],
)
def test_describe_names_the_policy(requested: Any, name: str) -> None:
    """One line says batch, micro-batches and policy."""
    policy = MicroBatchPolicy(requested)
    assert policy.name == name
    line = policy.describe(16, 2, 8)
    assert line == f"Effective batch size is 16: 8 x micro-batch 2 (policy: {name})"


@pytest.mark.parametrize(
    ("batch_size", "requested", "num_csx", "remedy"),
    [
        (48, 5, 2, "choose 3 or 4 or 6"),
        (48, 40, 4, "choose 6 or 8 or 12"),
        (7, 2, 1, "choose 1 or 7"),
        (10, None, 4, "choose 1 or 2"),
    ],
)
def test_size_that_does_not_divide_names_those_that_do(
    batch_size: int, requested: int | None, num_csx: int, remedy: str
) -> None:
    """The nearest ones that leave work for every system."""
    with raises(ConfigError, "batch-not-divisible") as caught:
        MicroBatchPolicy(requested).size(batch_size, num_csx)
    assert caught.value.remedy == remedy
    assert caught.value.where == FLAG


@pytest.mark.parametrize(
    ("requested", "num_csx", "code"),
    [
        ("auto", 4, "batch-below-systems"),
        ("fill_wafer", 4, "batch-below-systems"),
        (3, 2, "system-without-micro-batch"),
        (Explore(explore=SizeRange(min=2)), 2, "no-size-to-explore"),
    ],
)
def test_check_refuses_a_batch_of_three(requested: Any, num_csx: int, code: str) -> None:
    """Some system would never have anything to do."""
    with raises(ConfigError, code):
        MicroBatchPolicy(requested).check(3, num_csx)


def test_explore_has_no_size_of_its_own() -> None:
    """Its sizes are compared first."""
    with raises(ConfigError, "explore-states-no-size"):
        MicroBatchPolicy(Explore()).size(8, 1)


@given(sizes, st.integers(1, 300))
def test_largest_divisor_leaves_no_remainder(batch_size: int, at_most: int) -> None:
    """Nothing between it and the bound divides the batch."""
    size = largest_divisor(batch_size, at_most)
    assert batch_size % size == 0
    assert size <= at_most
    assert all(batch_size % d for d in range(size + 1, min(at_most, batch_size) + 1))


def test_explored_sizes_divide_the_batch() -> None:
    """From min to max, both included; every system gets a micro-batch."""
    assert explored_sizes(24, SizeRange(), 2) == [1, 2, 3, 4, 6, 8, 12]
    assert explored_sizes(24, SizeRange(min=3, max=8), 1) == [3, 4, 6, 8]


def test_explored_sizes_of_a_batch_of_billions() -> None:
    """Divisors are found in pairs: trying every size would never end."""
    assert explored_sizes(10**10, SizeRange(min=10**9), 2) == [10**9, 1_250_000_000, 2 * 10**9,
                                                               2_500_000_000, 5 * 10**9]  # fmt: skip
    assert AUTO.size(10**10, 4) == 1_250_000_000


def test_a_range_without_a_size_is_refused() -> None:
    """Both a range without a divisor and a range that is empty."""
    with raises(ConfigError, "no-size-to-explore") as caught:
        explored_sizes(24, SizeRange(min=5, max=5), 2)
    assert caught.value.value == "5 to 5"
    with pytest.raises(ValidationError):
        SizeRange(min=3, max=2)
