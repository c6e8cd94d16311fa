"""Keys of random streams depend on their coordinates alone."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.rng import stream_key

numbers = st.integers(0, 1 << 40)


@given(numbers, st.lists(numbers | st.text("abc", min_size=1), max_size=4))
def test_stream_key_seeds_a_generator(seed: int, coordinates: list[int | str]) -> None:
    """63 bits, never negative, the same at every call."""
    key = stream_key(seed, *coordinates)
    assert 0 <= key < 1 << 63
    assert key == stream_key(seed, *coordinates)
    torch.Generator().manual_seed(key)


@given(st.sets(st.tuples(numbers, numbers, numbers), min_size=2, max_size=2))
def test_stream_key_depends_on_every_coordinate(pair: set[tuple[int, int, int]]) -> None:
    """Seed, step and micro-batch each count."""
    first, second = pair
    assert stream_key(*first) != stream_key(*second)


def test_stream_key_separates_its_coordinates() -> None:
    """(1, 23) is not (12, 3), and the order counts."""
    keys = {stream_key(0, *c) for c in [(1, 23), (12, 3), (123,), (23, 1), (1, 2, 3)]}
    assert len(keys) == 5


def test_neighbouring_streams_look_unrelated() -> None:
    """First draws of consecutive micro-batches are spread over the interval."""
    draws = torch.stack(
        [
            torch.rand(1, generator=torch.Generator().manual_seed(stream_key(0, 1, i)))
            for i in range(2000)
        ]
    )
    assert abs(draws.mean() - 0.5) < 0.03
    assert abs(draws.var() - 1 / 12) < 0.01
