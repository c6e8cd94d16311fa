"""How a batch is cut: by the batch wherever possible, never silently by the number of systems."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wsc.core.errors import ConfigError
from wsc.core.micro_batches import SizeRange, explored_sizes, largest_divisor, micro_batch_size

sizes = st.integers(1, 300)


@given(sizes, st.integers(1, 8))
def test_auto_does_not_depend_on_up_to_eight_systems(batch_size, num_csx):
    """One answer for all of them; and every system has work."""
    if num_csx > batch_size:
        return
    size = micro_batch_size(batch_size, "auto", num_csx)
    assert batch_size % size == 0
    assert batch_size // size >= min(batch_size, 8)
    if batch_size >= 8:
        assert size == micro_batch_size(batch_size, "auto", 1)


@given(sizes, st.integers(1, 40))
def test_auto_is_the_largest_that_leaves_enough(batch_size, num_csx):
    """Fewer, larger micro-batches are faster."""
    if num_csx > batch_size:
        return
    size = micro_batch_size(batch_size, "auto", num_csx)
    wanted = min(batch_size, max(8, num_csx))
    larger = [d for d in range(size + 1, batch_size + 1) if batch_size % d == 0]
    assert all(batch_size // d < wanted for d in larger)


@pytest.mark.parametrize(
    ("batch_size", "requested", "num_csx", "size"),
    [(64, 4, 2, 4), (64, 64, 1, 64), (12, None, 4, 3), (12, None, 1, 12), (5, "auto", 2, 1)],
)
def test_small_cases(batch_size, requested, num_csx, size):
    """By hand; None gives every system one micro-batch."""
    assert micro_batch_size(batch_size, requested, num_csx) == size


@pytest.mark.parametrize(
    ("batch_size", "requested", "num_csx", "remedy"),
    [
        (48, 5, 2, "choose 3 or 4 or 6"),
        (48, 40, 4, "choose 6 or 8 or 12"),
        (7, 2, 1, "choose 1 or 7"),
        (10, None, 4, "choose 1 or 2"),
    ],
)
def test_a_size_that_does_not_divide_is_refused_with_those_that_do(
    batch_size, requested, num_csx, remedy
):
    """The nearest ones that leave work for every system."""
    with pytest.raises(ConfigError, match="cannot be cut") as caught:
        micro_batch_size(batch_size, requested, num_csx)
    assert caught.value.remedy == remedy
    assert caught.value.where == "csx.performance.micro_batch_size"


def test_a_batch_smaller_than_the_cluster_is_refused():
    """Some systems would never have anything to do."""
    with pytest.raises(ConfigError, match="smaller than the number of systems") as caught:
        micro_batch_size(3, "auto", 4)
    assert caught.value.value == "batch_size 3, num_csx 4"


@given(sizes, st.integers(1, 300))
def test_the_largest_divisor_leaves_no_rest(batch_size, at_most):
    """Nothing between it and the bound divides the batch."""
    size = largest_divisor(batch_size, at_most)
    assert batch_size % size == 0
    assert size <= at_most
    assert all(batch_size % d for d in range(size + 1, min(at_most, batch_size) + 1))


def test_explored_sizes_divide_the_batch_and_leave_work_for_all():
    """From min to max, both included."""
    assert explored_sizes(24, SizeRange(), 2) == [1, 2, 3, 4, 6, 8, 12]
    assert explored_sizes(24, SizeRange(min=3, max=8), 1) == [3, 4, 6, 8]


def test_a_batch_of_billions_is_cut_at_once():
    """Its divisors are found in pairs, not by trying every size."""
    start_s = time.perf_counter()
    assert explored_sizes(10**10, SizeRange(min=10**9), 2) == [10**9, 1_250_000_000, 2 * 10**9,
                                                               2_500_000_000, 5 * 10**9]  # fmt: skip
    assert micro_batch_size(10**10, "auto", 4) == 1_250_000_000
    assert time.perf_counter() - start_s < 5


def test_a_range_without_a_size_is_refused():
    """With the rule that no size of it keeps, and before that a range that is none."""
    with pytest.raises(ConfigError, match="no micro-batch size to explore") as caught:
        explored_sizes(24, SizeRange(min=5, max=5), 2)
    assert caught.value.value == "5 to 5"
    with pytest.raises(ValidationError, match="min 3 is above max 2"):
        SizeRange(min=3, max=2)
