"""Power and prices of cluster.yaml."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import MachineSpec, PowerSpec


@pytest.mark.parametrize("key", ["idle_kw", "load_kw", "host_kw"])
@pytest.mark.parametrize("value", [0, -1.5])
def test_power_that_is_not_positive_is_refused(key: str, value: float) -> None:
    """The key is named."""
    with pytest.raises(ConfigError, match=key):
        validate(PowerSpec, {key: value}, "power")


def test_idle_power_above_that_under_load_is_refused() -> None:
    """Where both are stated."""
    with raises(ConfigError, "idle-power-above-load"):
        validate(PowerSpec, {"idle_kw": 20, "load_kw": 10}, "power")


def test_a_site_that_gains_power_is_refused() -> None:
    """All power of the computers passes the site."""
    with pytest.raises(ConfigError, match="pue"):
        validate(PowerSpec, {"pue": 0.9}, "power")


def test_one_stated_number_changes_the_other_in_proportion() -> None:
    """Half the idle power, half that under load."""
    power = PowerSpec(idle_kw=16.1 / 2).of_system("CS-2")
    assert power.load_kw == pytest.approx(11.4)
    assert PowerSpec(idle_kw=1, load_kw=30).of_system("CS-3").load_kw == 30


def test_power_changes_no_time() -> None:
    """So a machine with other prices still has the published times."""
    assert MachineSpec.model_validate({"power": {"pue": 1.1}}).has_published_times
    assert not MachineSpec.model_validate({"swarmx": {"fan_out": 2}}).has_published_times
