"""What a project costs on one machine: set-up, care and waiting of people, hardware, energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waferstream.machine.energy import SECONDS_PER_HOUR

WORKING_SHARE = 40 / 168
"""Hours of a week in which people work, of all."""

Values = Mapping[str, float]
"""One value for each assumption."""


@dataclass(frozen=True)
class Cost:
    """A project on one machine; sums in US dollars."""

    set_up_usd: float
    care_usd: float
    waiting_usd: float
    hardware_usd: float
    energy_usd: float
    training_h: float
    """Of all trainings, one after the other."""
    kwh: float
    kg_co2e: float

    @property
    def items(self) -> Mapping[str, float]:
        """The sums by what they are for."""
        return {
            "set-up": self.set_up_usd,
            "care of trainings": self.care_usd,
            "waiting for trainings": self.waiting_usd,
            "hardware": self.hardware_usd,
            "electricity": self.energy_usd,
        }

    @property
    def usd(self) -> float:
        """The whole sum."""
        return sum(self.items.values())


def cost_of(name: str, count: int, values: Values) -> Cost:
    """Return the cost of a project.

    Args:
        name: The machine.
        count: Its systems or GPUs.
        values: One value for each assumption, by key.
    """
    runs, hour_usd = values["project.runs"], values["people.hour_usd"]
    rate = values[f"{name}.tokens_per_s"] * (1 - values[f"{name}.lost_share"])
    training_h = runs * values["project.tokens_per_run"] / rate / SECONDS_PER_HOUR
    waiting_h = values["people.researchers"] * values["people.waiting_share"] * training_h
    paid_h = training_h / (1 - values["site.unused_share"])
    kwh = values[f"{name}.computers_kw"] * values["site.pue"] * training_h
    return Cost(
        set_up_usd=values[f"{name}.set_up_h"] * hour_usd,
        care_usd=runs * values[f"{name}.care_h"] * hour_usd,
        waiting_usd=WORKING_SHARE * waiting_h * hour_usd,
        hardware_usd=count * values[f"{name}.hour_usd"] * paid_h,
        energy_usd=kwh * values["site.kwh_usd"],
        training_h=training_h,
        kwh=kwh,
        kg_co2e=kwh * values["site.grid_kg_per_kwh"],
    )
