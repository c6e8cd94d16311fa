"""Published figures are those of the clock, or stand beside what contradicts them."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.published import comparisons, machine_named, published_names


@pytest.mark.parametrize("name", published_names())
def test_clock_has_what_was_published(name: str) -> None:
    """Within the rounding of marketing, and of one source where several contradict."""
    for each in comparisons(name):
        figure = each.figure
        assert figure.source
        if each.on_the_clock is None or each.others:
            continue
        assert each.on_the_clock == pytest.approx(figure.value, rel=0.1), figure.what


@pytest.mark.parametrize("name", ["CS-2", "CS-3"])
def test_contradictions_name_each_other(name: str) -> None:
    """The clock takes one of them, where it has the quantity."""
    found = [each for each in comparisons(name) if each.others]
    assert "memory bandwidth" in {each.figure.what for each in found}
    for each in found:
        if each.on_the_clock is not None and each.figure.what != "memory bandwidth":
            values = [each.figure.value, *(other.value for other in each.others)]
            assert min(abs(each.on_the_clock - value) for value in values) < 1e-6


def test_cluster_shows_its_sizes_and_multiples() -> None:
    """Dense and sparse EFLOP/s, memory and power of all systems."""
    found = {each.figure.what: each for each in comparisons("condor-galaxy-3")}
    assert found["systems"].on_the_clock == 64
    assert found["MemoryX, DRAM"].on_the_clock == pytest.approx(108)
    assert found["all sparse 16-bit"].figure.value == 8
    assert found["all dense 16-bit"].figure.value == pytest.approx(1, rel=0.01)
    assert found["all power"].figure.value == pytest.approx(64 * 23)


def test_unknown_machine_is_refused() -> None:
    with raises(ConfigError, "unknown-machine"):
        machine_named("CS-4")
