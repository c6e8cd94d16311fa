"""Durations, energies and what they cost as text."""

from __future__ import annotations

from waferstream.core.units import format_rate, format_short
from waferstream.machine.energy import SECONDS_PER_HOUR, EnergyUse, Footprint
from waferstream.machine.start_up import StartUp
from waferstream.reports.economics import SECONDS_PER_DAY, SECONDS_PER_YEAR

PRICE_NOTE = (
    "Power, carbon dioxide and prices are those of machine.power in cluster.yaml; money is the "
    "hours of systems with their hosts, and energy."
)

_MANY_USD = 1e5  # from here on with a suffix

_PARTS = {"memoryx": "MemoryX", "swarmx": "SwarmX"}


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


def format_footprint(footprint: Footprint) -> str:
    """Return energy, carbon dioxide and money in one line."""
    usd = footprint.usd
    money = format_short(usd) if usd >= _MANY_USD else format_rate(usd, 3)
    return f"{format_energy(footprint.kwh)}, {format_mass(footprint.kg_co2e)} CO2e, {money} USD"


def format_mass(mass_kg: float) -> str:
    """Return a mass in kg; in g below a tenth of one, in t from 10,000 on."""
    if mass_kg < 0.1:
        return f"{format_rate(1e3 * mass_kg, 3)} g"
    if mass_kg < 1e4:
        return f"{format_rate(mass_kg, 3)} kg"
    return f"{format_rate(mass_kg / 1e3, 3)} t"


def power_text(energy: EnergyUse) -> str:
    """Return the power of a cluster and of its parts in one line."""
    parts = {name.removesuffix("_kw"): kw for name, kw in vars(energy.draw).items()}
    named = ", ".join(
        f"{_PARTS.get(name, name)} {format_rate(kw, 3)}" for name, kw in parts.items()
    )
    return f"{format_rate(energy.power_kw, 3)} kW ({named}; computing {energy.compute_share:.0%})"


def energy_facts(energy: EnergyUse, start_up: StartUp | None = None) -> dict[str, str]:
    """Return power, energy, carbon dioxide and money of training, by what they are of."""
    facts = {"Power": power_text(energy), "A step": format_footprint(energy.step)}
    if energy.run != energy.step:
        facts["The run"] = format_footprint(energy.run)
    if energy.per_million_tokens is None:
        facts["1M samples"] = format_footprint(energy.per_million_samples)
    else:
        facts["1M tokens"] = format_footprint(energy.per_million_tokens)
    if start_up is not None:
        facts["To start"] = format_footprint(energy.start_up(start_up.total_ps))
    return facts
