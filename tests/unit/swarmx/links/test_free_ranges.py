"""Free ranges: lowest first, joined when given back, never two owners of a byte."""

import random

import pytest

from swarmx.links.free_ranges import FreeRanges


def test_lowest_range_that_is_long_enough_is_taken() -> None:
    """A smaller request fills the gap that a larger one has left."""
    free = FreeRanges(100)
    assert [free.take(size) for size in (30, 20, 10)] == [0, 30, 50]
    free.give_back(0, 30)
    assert [free.take(size) for size in (31, 10, 20, 9)] == [60, 0, 10, 91]
    assert free.take(1) is None


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_neighbours_are_joined_in_any_order(order: tuple[int, ...]) -> None:
    """Three ranges side by side serve one request of their whole size again."""
    free = FreeRanges(30)
    for _ in range(3):
        assert free.take(10) is not None
    for place in order:
        free.give_back(10 * place, 10)
    assert free.take(30) == 0


@pytest.mark.parametrize(("start", "num_bytes"), [(10, 10), (5, 10), (15, 10), (40, 11), (0, 30)])
def test_range_cannot_be_given_back_twice(start: int, num_bytes: int) -> None:
    """Bytes with two owners would be a wrong sum."""
    free = FreeRanges(50)
    for _ in range(5):
        free.take(10)
    free.give_back(10, 10)
    with pytest.raises(RuntimeError, match="twice"):
        free.give_back(start, num_bytes)


def test_random_slabs_of_mixed_sizes_never_overlap() -> None:
    """Every byte has at most one owner, and all bytes come back."""
    free, draw = FreeRanges(1000), random.Random(0)
    held: dict[int, int] = {}
    for _ in range(500):
        if held and draw.random() < 0.5:
            start = draw.choice(sorted(held))
            free.give_back(start, held.pop(start))
        elif (taken := free.take(size := draw.randint(1, 90))) is not None:
            held[taken] = size
        owned = [byte for start, size in held.items() for byte in range(start, start + size)]
        assert len(set(owned)) == len(owned)
        assert max(owned, default=0) < 1000
    for start, size in held.items():
        free.give_back(start, size)
    assert free.take(1000) == 0
