"""Where the defects of a wafer come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from timing.hardware import DefectSpec
from wsc.core.errors import ConfigError


def test_defect_spec_has_one_origin(tmp_path: Path) -> None:
    """A map and random defects exclude each other."""
    with pytest.raises(ConfigError) as caught:
        DefectSpec(map=tmp_path / "map.csv", pe_yield=0.99)
    assert caught.value.where == "system.defects"


def test_defect_spec_bounds_the_yield() -> None:
    """A yield below 0.8 is refused."""
    with raises(ConfigError, "out-of-range"):
        DefectSpec(pe_yield=0.0)
