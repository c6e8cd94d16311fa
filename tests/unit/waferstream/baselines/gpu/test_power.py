"""Power and price of GPUs."""

from __future__ import annotations

import pytest

from waferstream.baselines.gpu.chips import PRESETS
from waferstream.baselines.gpu.clusters import DGX_H100
from waferstream.baselines.gpu.power import gpu_hour, node_power
from waferstream.machine.hardware import PowerSpec

SITE = PowerSpec(pue=1.0, grid_kg_per_kwh=0.5, kwh_usd=0.1)


def test_an_hour_of_a_node_takes_what_was_measured() -> None:
    """7.75 kW, 76 % of the rated power (arXiv 2506.14551); a single node needs no switches."""
    hour = gpu_hour(DGX_H100, 8, SITE)
    assert hour.kwh == pytest.approx(7.75)
    assert hour.kg_co2e == pytest.approx(7.75 / 2)
    assert hour.usd == pytest.approx(0.775 + 9.27)


def test_several_nodes_need_switches_and_cooling() -> None:
    """And a part of a node is its share."""
    assert gpu_hour(DGX_H100, 16, SITE).kwh == pytest.approx(2 * (7.75 + 0.65))
    assert gpu_hour(DGX_H100, 4, PowerSpec(pue=1.5)).kwh == pytest.approx(1.5 * 7.75 / 2)


def test_every_gpu_has_a_power() -> None:
    """By the first word of its name."""
    kws = {one.spec.name: node_power(one.spec.name).node_kw for one in PRESETS.values()}
    assert kws["A100-80GB"] == 4.94
    assert kws["H100-96GB-500W"] == kws["H200"] == 7.75
    assert kws["B200"] == pytest.approx(0.76 * 14.3, rel=0.01)
