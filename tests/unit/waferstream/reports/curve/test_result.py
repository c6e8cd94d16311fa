"""Efficiencies of the points of a curve."""

from __future__ import annotations

import pytest

from waferstream.reports.curve.result import efficiencies


def test_efficiencies_are_relative_to_the_first_point() -> None:
    assert efficiencies([2, 4, 8], [10.0, 20.0, 30.0]) == pytest.approx([1.0, 1.0, 0.75])
