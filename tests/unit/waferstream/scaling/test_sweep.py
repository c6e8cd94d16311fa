"""Numbers of systems as they are typed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.scaling.sweep import MOST_SYSTEMS, parse_sweep, powers_up_to
from wsc.core.errors import ConfigError

numbers = st.integers(1, MOST_SYSTEMS)


@given(st.lists(numbers, min_size=1))
def test_single_numbers_come_sorted_and_once(typed: list[int]) -> None:
    """Spaces and order do not matter."""
    assert parse_sweep(" , ".join(map(str, typed)), "--sweep") == tuple(sorted(set(typed)))


@given(numbers, numbers)
def test_a_range_holds_both_its_ends(one: int, other: int) -> None:
    """And everything between."""
    first, last = sorted((one, other))
    assert parse_sweep(f"{first}-{last}", "--sweep") == tuple(range(first, last + 1))


@given(numbers, numbers, st.integers(2, 10))
def test_a_factor_multiplies_up_to_the_end(one: int, other: int, factor: int) -> None:
    """Each number is so many times the one before, and the next one would be beyond the end."""
    first, last = sorted((one, other))
    found = parse_sweep(f"{first}-{last}:x{factor}", "--sweep")
    assert found[0] == first
    assert all(b == factor * a for a, b in pairwise(found))
    assert found[-1] <= last < found[-1] * factor


def test_parts_add_up() -> None:
    """Numbers and ranges of both kinds, overlapping."""
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
    ],
)
def test_what_cannot_be_read_is_named(text: str, wrong: str) -> None:
    """The error shows the part, the flag and an example of each form."""
    with pytest.raises(ConfigError, match="1-2048:x2") as caught:
        parse_sweep(text, "--sweep")
    assert str(caught.value.value).startswith(wrong)
    assert caught.value.where == "--sweep"


@given(numbers)
def test_powers_of_two_lead_up_to_a_number(num_csx: int) -> None:
    """From one on, each once."""
    found = powers_up_to(num_csx)
    assert (found[0], found[-1]) == (1, num_csx)
    assert sorted(set(found)) == list(found)
    assert all(number & (number - 1) == 0 for number in found[:-1])
