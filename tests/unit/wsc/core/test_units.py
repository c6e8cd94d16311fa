"""Units: whole picoseconds, and numbers that people can read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsc.core.units import (
    PS_PER_S,
    format_bytes,
    format_count,
    format_ps,
    seconds,
    transfer_ps,
)


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 40))
def test_a_transfer_is_rounded_up(num_bytes, bandwidth):
    """Never faster than the wire, and late by less than a picosecond."""
    duration_ps = transfer_ps(num_bytes, bandwidth)
    assert duration_ps * bandwidth >= num_bytes * PS_PER_S > (duration_ps - 1) * bandwidth


def test_one_byte_is_never_free():
    """Even the fastest wire takes a picosecond."""
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
    ],
)
def test_durations_for_people(duration_ps, text):
    """The largest unit of which there is at least one."""
    assert format_ps(duration_ps) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes_for_people(num_bytes, text):
    """Binary units, one digit."""
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(999, "999"), (1500, "1.5 thousand"), (2.5e6, "2.5 million"), (70e9, "70 billion")],
)
def test_counts_for_people(number, text):
    """Three digits and a word."""
    assert format_count(number) == text


def test_seconds():
    """For rates and reports."""
    assert seconds(1_500_000_000_000) == 1.5
