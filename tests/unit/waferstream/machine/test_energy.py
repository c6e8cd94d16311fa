"""Energy, carbon dioxide and money of emulated steps."""

from __future__ import annotations

import pytest

from waferstream.machine.attribution import Attribution, StepTiming, TimedSteps
from waferstream.machine.energy import cluster_draw, compute_share, energy_use
from waferstream.machine.hardware import MachineSpec

HOUR_PS = 3600 * 10**12
MACHINE = MachineSpec.model_validate(
    {
        "system": "CS-2",
        "activations": {"servers": 8},
        "power": {
            "host_kw": 0.5, "hosts_per_system": 2, "memoryx_hosts": 12, "pue": 1.5,
            "grid_kg_per_kwh": 0.4, "kwh_usd": 0.1, "system_hour_usd": 50,
        },
    }
)  # fmt: skip


def timed(compute_ps: int, num_busy: int = 2) -> TimedSteps:
    """Return an hour-long step of which the busy systems compute for a part."""
    busy = Attribution(compute=compute_ps, weights=HOUR_PS - compute_ps)
    step = StepTiming(1, 0, HOUR_PS, 100, num_busy, busy, Attribution(idle=HOUR_PS))
    return TimedSteps.of([step])


def test_a_system_draws_more_while_it_computes() -> None:
    """16.1 kW waiting and 22.8 kW computing, as measured on a CS-2."""
    draws = [cluster_draw(MACHINE, 1, 12, share).systems_kw for share in (0.0, 0.5, 1.0)]
    assert draws == pytest.approx([16.1, (16.1 + 22.8) / 2, 22.8])


def test_hosts_draw_power_and_cooling_takes_a_share_of_all() -> None:
    """Twelve of MemoryX, 24 of SwarmX, ten beside each system; half as much for cooling."""
    draw = cluster_draw(MACHINE, 2, 24, 1.0)
    assert (draw.memoryx_kw, draw.swarmx_kw, draw.activations_kw, draw.hosts_kw) == (6, 12, 8, 2)
    assert draw.cooling_kw == pytest.approx((45.6 + 28) / 2)
    assert draw.total_kw == pytest.approx(1.5 * 73.6)


def test_andromeda_draws_what_was_published_of_it() -> None:
    """500 kW with 16 CS-2 (tomshardware.com, 2022-11-14), cooling apart."""
    draw = cluster_draw(MachineSpec(), 16, 60, 1.0)
    assert draw.total_kw - draw.cooling_kw == pytest.approx(500, rel=0.01)


def test_systems_without_a_micro_batch_draw_idle_power() -> None:
    """One of two has work, and computes half of the time."""
    assert compute_share(timed(HOUR_PS // 2, num_busy=1), 2) == pytest.approx(0.25)


def test_energy_carbon_and_money_of_an_hour() -> None:
    """A step of an hour with 100 samples of 1,000 tokens; a run of ten such steps."""
    use = energy_use(MACHINE, 2, 24, timed(HOUR_PS), 1000, num_steps=10)
    assert use.step.kwh == pytest.approx(use.power_kw) == pytest.approx(1.5 * 73.6)
    assert use.step.kg_co2e == pytest.approx(0.4 * use.step.kwh)
    assert use.step.usd == pytest.approx(0.1 * use.step.kwh + 2 * 50)
    assert use.run == use.step.times(10)
    assert use.start_up(HOUR_PS // 2).kwh == pytest.approx(1.5 * (2 * 16.1 + 28) / 2)
    assert use.per_million_samples.kwh == pytest.approx(1e4 * use.step.kwh)
    assert use.per_million_tokens is not None
    assert use.per_million_tokens.kwh == pytest.approx(10 * use.step.kwh)


def test_a_model_without_tokens_has_none_to_pay_for() -> None:
    """Its run is as long as what was emulated where nothing else is stated."""
    use = energy_use(MACHINE, 2, 24, timed(HOUR_PS), None)
    assert use.per_million_tokens is None
    assert use.run == use.step
