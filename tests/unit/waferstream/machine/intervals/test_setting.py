"""Settings have positive sizes, and a distance in decades over those that both have."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.intervals import Setting, decades_between
from waferstream.machine.intervals.setting import training_setting


def _setting(**sizes: float) -> Setting:
    return Setting("training CS-2", "CS-2", sizes)


def test_distance_counts_shared_sizes_alone() -> None:
    one, other = (
        _setting(parameters=1e9, tokens=100, systems=1),
        _setting(parameters=1e6, tokens=1e6),
    )
    assert decades_between(one, other) == pytest.approx(5)
    assert decades_between(other, one) == pytest.approx(5)
    assert decades_between(one, _setting(batch=3)) == 0


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan")])
def test_setting_refuses_a_size_that_is_not_positive(size: float) -> None:
    with raises(ConfigError, "size-not-positive"):
        _setting(parameters=size)


def test_training_setting_leaves_out_what_is_unknown() -> None:
    """Weak scaling moves one size, the number of systems: each keeps its samples."""
    setting = training_setting("training CS-2", "CS-2", 7.5e15, 1e9, None, 512, 4)
    assert setting.sizes == {
        "parameters": 1e9,
        "samples_per_system": 128,
        "systems": 4,
        "flops_per_s": 7.5e15,
    }
