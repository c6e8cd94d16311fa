"""Micro-batch sizes compared: which are tried, which is fastest, how they are reported."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.simulator.exploration import Trial, exploration_table, explore, fastest
from waferstream.simulator.simulator import Simulator


class Machine:
    """Holds ``role`` samples of a kilobyte; from two on, one segment is recomputed."""

    def __init__(self, role: int) -> None:
        self.largest_micro_batch = role

    def sram_plan(self, size: int) -> Any:
        if size > self.largest_micro_batch:
            raise ApplianceResourceExhausted("too large", code="too-large", value=size)
        recomputed = (0,) if size > 1 else ()
        return SimpleNamespace(peak_bytes=1024 * size, recomputed=recomputed)

    def predict(self, batch_size: int, size: int, num_csx: int) -> Any:
        rounds = -(-batch_size // (size * num_csx))
        return SimpleNamespace(timing=SimpleNamespace(duration_ps=1000 * rounds * (size + 1)))


def tried(role: int) -> tuple[Trial, ...]:
    return explore(cast(Simulator, Machine(role)), 24, [1, 2, 4, 8, 12], 3)


def test_every_size_that_fits_is_tried() -> None:
    """With its memory, what is recomputed for it, and its step on that many systems."""
    assert tried(role=5) == (
        Trial(1, 24, 1024, 0, 8 * 2000),
        Trial(2, 12, 2048, 1, 4 * 3000),
        Trial(4, 6, 4096, 1, 2 * 5000),
    )


def test_a_model_of_which_not_one_size_fits_is_refused() -> None:
    """With the numbers of the smallest size."""
    with pytest.raises(ApplianceResourceExhausted) as refusal:
        tried(role=0)
    assert refusal.value.value == "1"


def test_of_equal_steps_the_smallest_micro_batch_is_best() -> None:
    """It needs least memory, at any position in the list."""
    slow, large, small = Trial(1, 8, 1, 0, 9), Trial(4, 2, 4, 0, 7), Trial(2, 4, 2, 0, 7)
    assert fastest([slow, large, small]) is small


def test_the_table_points_at_the_fastest() -> None:
    """One line for each size, under a heading."""
    heading, *lines = exploration_table(tried(role=5)).split("\n")
    assert heading.split("  ")[1:3] == ["micro-batch", "micro-batches"]
    assert [line.split() for line in lines] == [
        ["1", "24", "1.0", "KiB", "0", "16.00", "ns"],
        ["2", "12", "2.0", "KiB", "1", "12.00", "ns"],
        ["->", "4", "6", "4.0", "KiB", "1", "10.00", "ns"],
    ]
