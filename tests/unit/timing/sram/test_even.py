"""Micro-batches of even size, held against their definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing.sram.even import even_micro_batch, rounds_of, share_of
from wsc.core.errors import ConfigError

sizes = st.integers(1, 5000)


@given(num_csx=sizes, more=st.integers(0, 5000), largest=sizes)
def test_fewest_rounds_and_least_of_them_all(num_csx: int, more: int, largest: int) -> None:
    """No larger size saves a round within the limit, and no smaller one keeps the rounds."""
    batch_size = num_csx + more
    size = even_micro_batch(batch_size, num_csx, largest)
    rounds = rounds_of(batch_size, num_csx, size)
    assert 1 <= size <= largest
    assert rounds == rounds_of(batch_size, num_csx, largest)
    assert size == 1 or rounds_of(batch_size, num_csx, size - 1) > rounds


def test_published_example_of_valid_sizes() -> None:
    """A share of 12 samples can be cut into 12, 6, 4, 3, 2 or 1 and nothing between."""
    assert [even_micro_batch(24, 2, largest) for largest in (99, 11, 5, 3, 2, 1)] == [
        12, 6, 4, 3, 2, 1,
    ]  # fmt: skip
    assert share_of(25, 2) == 13


def test_a_system_without_a_sample_is_refused() -> None:
    """The message says both numbers and what to change."""
    with pytest.raises(ConfigError, match=r"batch_size 3, num_csx 4(?s:.*)lower num_csx"):
        even_micro_batch(3, 4, 8)


def test_a_wafer_without_room_is_refused() -> None:
    """Zero samples per micro-batch is no schedule."""
    with pytest.raises(ConfigError, match="no room"):
        even_micro_batch(8, 2, 0)
