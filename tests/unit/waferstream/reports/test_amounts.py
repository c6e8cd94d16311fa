"""Durations and energies choose their unit."""

from __future__ import annotations

import pytest

from waferstream.reports.amounts import format_duration, format_energy


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (10, "10 s"),
        (600, "10 min"),
        (3 * 3600, "3.0 h"),
        (100 * 86400, "100.0 days"),
        (1e8, "3.2 years"),
    ],
)
def test_format_duration_chooses_the_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("kwh", "text"), [(9.0, "9 kWh"), (500, "0.5 MWh"), (2e6, "2,000 MWh"), (3e7, "30 GWh")]
)
def test_format_energy_chooses_the_unit(kwh: float, text: str) -> None:
    assert format_energy(kwh) == text
