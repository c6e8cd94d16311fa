"""Decoders, regions and their limits."""

from typing import Any

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import WSE2, override
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.region import Region


@pytest.mark.parametrize("side", [0, 2, 751, -1])
def test_region_larger_than_the_wafer_is_refused(side: int) -> None:
    """The grid of a WSE-2 is 750 PEs wide; two-hop shifts need three PEs."""
    with raises(ConfigError, "region-exceeds-wafer") as refusal:
        Region(side)
    assert refusal.value.value == str(side)


def test_region_is_limited_by_the_shorter_side_of_the_wafer() -> None:
    """Columns or rows."""
    for columns, rows in ((9, 5), (5, 9)):
        fabric = override(WSE2, columns=columns, rows=rows)
        assert Region(5, fabric).side == 5
        with raises(ConfigError, "region-exceeds-wafer"):
            Region(6, fabric)


@pytest.mark.parametrize("field", ["dim", "ffn", "layers", "kv_dim"])
def test_decoder_without_extent_is_refused(field: str) -> None:
    """Each number has to be positive, and the error names the one that is not."""
    extents: dict[str, Any] = {"dim": 8, "ffn": 8, "layers": 1, "kv_dim": 8, field: 0}
    with pytest.raises(ConfigError) as refused:
        Decoder(**extents)
    assert refused.value.where == field


def test_region_clock_of_zero_is_refused() -> None:
    """Otherwise seconds would be infinite."""
    with pytest.raises(ConfigError) as refused:
        Region(100, clock_hz=0)
    assert refused.value.where == "clock_hz"
