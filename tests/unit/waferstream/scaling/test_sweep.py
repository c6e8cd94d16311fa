"""Parsing of numbers of systems."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.model.inventory import MOST_SYSTEMS
from waferstream.scaling.sweep import (
    SimulationRequest,
    counts_of,
    parse_sweep,
    powers_up_to,
)

numbers = st.integers(1, MOST_SYSTEMS)


@given(st.lists(numbers, min_size=1))
def test_parse_sweep_sorts_numbers_and_drops_repeats(typed: list[int]) -> None:
    assert parse_sweep(" , ".join(map(str, typed)), "--sweep") == tuple(sorted(set(typed)))


@given(numbers, numbers)
def test_parse_sweep_includes_both_ends_of_a_range(one: int, other: int) -> None:
    first, last = sorted((one, other))
    assert parse_sweep(f"{first}-{last}", "--sweep") == tuple(range(first, last + 1))


@given(numbers, numbers, st.integers(2, 10))
def test_parse_sweep_multiplies_by_a_factor(one: int, other: int, factor: int) -> None:
    first, last = sorted((one, other))
    found = parse_sweep(f"{first}-{last}:x{factor}", "--sweep")
    assert found[0] == first
    assert all(b == factor * a for a, b in pairwise(found))
    assert found[-1] <= last < found[-1] * factor


def test_parse_sweep_joins_parts() -> None:
    """Numbers and overlapping ranges of both kinds."""
    assert parse_sweep("1,2,4-8,6-20:x2", "--sweep") == (1, 2, 4, 5, 6, 7, 8, 12)
    assert parse_sweep("1-2048:x2", "--sweep") == tuple(1 << power for power in range(12))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1,x", "x in"),
        ("0", "0 in"),
        ("2049", "2049 in"),
        ("8-4", "8-4 in"),
        ("1,-2", "-2 in"),
        ("4-", "4- in"),
        ("1,2.5", "2.5 in"),
        ("", "nothing in"),
        ("1,,2", "nothing in"),
        ("1-8:x1", "1-8:x1 in"),
        ("1-8:x0", "1-8:x0 in"),
        ("8:x2", "8:x2 in"),
        ("²", "² in"),
        ("1" * 5000, "111"),
    ],
)
def test_parse_sweep_names_the_part_that_is_wrong(text: str, wrong: str) -> None:
    with raises(ConfigError, "sweep-invalid") as caught:
        parse_sweep(text, "--sweep")
    assert str(caught.value.value).startswith(wrong)
    assert caught.value.where == "--sweep"


@given(numbers)
def test_powers_up_to_a_number_start_at_one(num_csx: int) -> None:
    found = powers_up_to(num_csx)
    assert (found[0], found[-1]) == (1, num_csx)
    assert sorted(set(found)) == list(found)
    assert all(number & (number - 1) == 0 for number in found[:-1])


def test_counts_of_a_request_contain_the_requested_number() -> None:
    assert counts_of(SimulationRequest(sweep=(2, 8)), 4) == (2, 4, 8)
    assert counts_of(SimulationRequest(), 6) == (1, 2, 4, 6)
    with raises(ConfigError, "out-of-range"):
        counts_of(SimulationRequest(), MOST_SYSTEMS + 1)
