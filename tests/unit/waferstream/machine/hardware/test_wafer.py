"""Where the defects of a wafer come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import DefectSpec


def test_defect_spec_has_one_origin(tmp_path: Path) -> None:
    """A map and random defects exclude each other."""
    with pytest.raises(ConfigError) as caught:
        DefectSpec(map=tmp_path / "map.csv", pe_yield=0.99)
    assert caught.value.where == "system.defects"


def test_defect_spec_bounds_the_yield() -> None:
    """A yield below 0.8 is refused."""
    with raises(ConfigError, "out-of-range"):
        DefectSpec(pe_yield=0.0)
