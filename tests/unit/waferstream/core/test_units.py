"""Units: whole picoseconds, and formatted numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.units import (
    PS_PER_S,
    aligned,
    counted,
    folded,
    format_bytes,
    format_count,
    format_ps,
    format_rate,
    format_short,
    parse_count,
    seconds,
    transfer_ps,
)


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 40))
def test_transfer_ps_rounds_up(num_bytes: int, bandwidth: int) -> None:
    """A transfer is late by less than a picosecond."""
    duration_ps = transfer_ps(num_bytes, bandwidth)
    assert duration_ps * bandwidth >= num_bytes * PS_PER_S > (duration_ps - 1) * bandwidth


def test_transfer_ps_of_one_byte_is_positive() -> None:
    """Even the fastest link takes a picosecond."""
    assert transfer_ps(1, 10**15) == 1
    assert transfer_ps(0, 10**9) == 0


@pytest.mark.parametrize(
    ("duration_ps", "text"),
    [
        (0, "0 ps"),
        (999, "999 ps"),
        (1_500, "1.50 ns"),
        (2_000_000, "2.00 us"),
        (1_500_000_000, "1.50 ms"),
        (-3 * PS_PER_S, "-3.00 s"),
        (122_335_730_000_000_000, "122,335.73 s"),
    ],
)
def test_format_ps(duration_ps: int, text: str) -> None:
    """The largest unit of which there is at least one."""
    assert format_ps(duration_ps) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")],
)
def test_format_bytes(num_bytes: int, text: str) -> None:
    """Binary units, one digit."""
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(999, "999"), (1500, "1.5 thousand"), (2.5e6, "2.5 million"), (70e9, "70 billion")],
)
def test_format_count(number: float, text: str) -> None:
    """Three digits and a word."""
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.02511, "0.02511"),
        (97.4, "97.4"),
        (999.96, "1,000"),
        (13_264.3, "13,264"),
        (2e7, "20,000,000"),
    ],
)
def test_format_rate(number: float, text: str) -> None:
    """Four digits, or all before the point, and never a power of ten for a large one."""
    assert format_rate(number) == text


def test_format_rate_with_fewer_digits() -> None:
    """The digits before the point are written in full."""
    assert format_rate(1456.7, digits=3) == "1,457"
    assert format_rate(56.96, digits=3) == "57"


def test_counted_uses_singular_and_plural() -> None:
    """One of a kind has no plural."""
    assert [counted(n, "layer") for n in (0, 1, 2048)] == ["0 layers", "1 layer", "2,048 layers"]
    assert counted(2, "batch", "batches") == "2 batches"


def test_seconds_of_picoseconds() -> None:
    """For rates and reports."""
    assert seconds(1_500_000_000_000) == 1.5


def test_aligned_pads_left_and_right_columns() -> None:
    """Each column is as wide as its widest cell, and no line ends in blanks."""
    assert aligned([("a", "bb"), ("ccc", "d")]) == ["a    bb", "ccc   d"]
    assert aligned([("a", "bb"), ("ccc", "d")], left=()) == ["  a  bb", "ccc   d"]
    assert aligned([("1", "why"), ("22", "")], left=(1,)) == [" 1  why", "22"]


ROWS = [("n", "one", "two", "three"), ("10", "1", "2", "3")]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (None, ["n   one  two  three", "10    1    2      3"]),
        (19, ["n   one  two  three", "10    1    2      3"]),
        (18, ["n   one  two", "10    1    2", "", "n   three", "10      3"]),
        (7, ["n   one", "10    1", "", "n   two", "10    2", "", "n   three", "10      3"]),
    ],
)
def test_folded_lines_are_not_wider_than_asked(width: int | None, lines: list[str]) -> None:
    assert folded(ROWS, width) == lines


def test_aligned_refuses_a_short_row() -> None:
    """It would shift all that follow."""
    with pytest.raises(ValueError, match="zip"):
        aligned([("a", "b"), ("c",)])


@pytest.mark.parametrize(
    ("number", "text"),
    [(97.4, "97.4"), (999.6, "1K"), (199_468, "199K"), (2.71e6, "2.71M"), (3e11, "300B")],
)
def test_format_short_has_three_digits_and_a_suffix(number: float, text: str) -> None:
    """parse_count reads it back."""
    assert format_short(number) == text
    assert parse_count(text) == pytest.approx(number, rel=0.005)


@pytest.mark.parametrize("text", ["", "B", "3X", "three"])
def test_parse_count_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no number such as"):
        parse_count(text)
