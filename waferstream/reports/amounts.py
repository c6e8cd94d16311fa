"""Durations and energies as text."""

from __future__ import annotations

from waferstream.core.units import format_rate
from waferstream.reports.economics import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_YEAR,
    StepEnergy,
)


def format_duration(duration_s: float) -> str:
    """Return a duration in seconds to years, each unit up to two of the next one."""
    if duration_s < 120:
        return f"{duration_s:.0f} s"
    if duration_s < 2 * SECONDS_PER_HOUR:
        return f"{duration_s / 60:.0f} min"
    if duration_s < 2 * SECONDS_PER_DAY:
        return f"{duration_s / SECONDS_PER_HOUR:.1f} h"
    if duration_s < 2 * SECONDS_PER_YEAR:
        return f"{duration_s / SECONDS_PER_DAY:,.1f} days"
    return f"{duration_s / SECONDS_PER_YEAR:,.1f} years"


def format_energy(energy_kwh: float) -> str:
    """Return an energy in MWh; in kWh below a tenth of one, in Wh below a tenth of that unit, in
    GWh from 10,000 on."""
    if energy_kwh < 0.1:
        return f"{format_rate(1e3 * energy_kwh, 3)} Wh"
    if energy_kwh < 100:
        return f"{format_rate(energy_kwh, 3)} kWh"
    if energy_kwh < 1e7:
        return f"{format_rate(energy_kwh / 1e3, 3)} MWh"
    return f"{format_rate(energy_kwh / 1e6, 3)} GWh"


def energy_facts(energy: StepEnergy) -> dict[str, str]:
    """Return power and energy of training steps, by what they are."""
    facts = {
        "Power": f"{energy.systems:,} x {energy.system_kw:g} kW under load",
        "Energy of a step": format_energy(energy.step_kwh),
    }
    if energy.per_billion_tokens_kwh is not None:
        facts["Energy of 1B tokens"] = format_energy(energy.per_billion_tokens_kwh)
    return facts
