"""Power of a cluster, and what a kilowatt-hour and an hour of a system cost.

A system draws one power while its kernels compute, and another, which is not much less, while it
waits. Hosts draw the same power at all times; there are those of MemoryX, one for each SwarmX node,
activation servers, and those that read samples and manage. Cooling is a share of all of them.

Andromeda has 16 CS-2 and 284 servers of one CPU each, and draws 500 kW; it cost 30 M USD
(enterpriseai.news, 2022-11-14; tomshardware.com, the same day). Less 12 servers of MemoryX and 60
of SwarmX, 13.25 are left for each system, of which 12 hold activations. So Condor Galaxy 1, with
64, would have 1,112 servers; its published 72,704 cores are 1,136 CPUs of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import Preset, Sourced, preset, sourced

MOST_PRICE = 1e12
"""Largest power and price: enough for any currency, and sums stay finite."""


class SystemPowerSpec(Config):
    """Power of one system, without hosts and cooling."""

    idle_kw: PositiveFloat
    """While no kernel computes."""
    load_kw: PositiveFloat
    """While kernels compute."""

    def mean_kw(self, compute_share: float) -> float:
        """Return the mean power of a system whose kernels compute for a share of the time."""
        return self.idle_kw + compute_share * (self.load_kw - self.idle_kw)


PRESETS: Mapping[str, Preset[Any]] = {
    "CS-2": preset(
        SystemPowerSpec,
        "Power of a CS-2",
        idle_kw=Sourced(16.1, "published", "K0077: arXiv 2204.03775, section V.C, measured"),
        load_kw=Sourced(
            22.8, "published", "K0077: the average of a stencil; 22.9 at its peak, measured"
        ),
    ),
    "CS-3": preset(
        SystemPowerSpec,
        "Power of a CS-3",
        idle_kw=Sourced(18.4, "derived", "T0223 I0033: 80 % of the rated 23 kW; medium confidence"),
        load_kw=Sourced(23.0, "published", "I0029, and T0224 I0034: about all of it under load"),
    ),
}
"""Power of one system by its name."""


class PowerSpec(Config):
    """Power, carbon dioxide and prices of a cluster; prices are in US dollars."""

    idle_kw: PositiveFloat | None = sourced(
        None, "published", "one system that waits; 16.1 for a CS-2, 18.4 for a CS-3", le=MOST_PRICE
    )
    load_kw: PositiveFloat | None = sourced(
        None,
        "published",
        "one system that computes; 22.8 for a CS-2, 23 for a CS-3",
        le=MOST_PRICE,
    )
    host_kw: PositiveFloat = sourced(
        0.47,
        "derived",
        "(500 kW - 16 x 22.9 kW) / 284 servers of Andromeda, with their share of switches",
        le=MOST_PRICE,
    )
    memoryx_hosts: PositiveInt = sourced(
        12, "published", "weight servers of a job at one site, for any number of systems"
    )
    hosts_per_system: PositiveFloat = sourced(
        1.25,
        "derived",
        "(284 - 12 - 60) / 16 - 12: servers of Andromeda without MemoryX, SwarmX and activations",
        le=MOST_PRICE,
    )
    pue: PositiveFloat = sourced(
        1.56,
        "published",
        "power of a site over that of its computers: mean of the Uptime Institute's survey of 2024;"
        " the largest sites state 1.1",
        ge=1,
        le=100,
    )
    grid_kg_per_kwh: NonNegativeFloat = sourced(
        0.481,
        "published",
        "CO2e of a kWh, mean of the world in 2023 (Ember, July 2024); Norway 0.03, India 0.713",
        le=100,
    )
    kwh_usd: NonNegativeFloat = sourced(
        0.08,
        "published",
        "a kWh for industry, mean of the United States (EIA, Electric Power Monthly, 5.6.B)",
        le=MOST_PRICE,
    )
    system_hour_usd: NonNegativeFloat = sourced(
        53.5,
        "derived",
        "30 M USD of Andromeda for 16 systems with hosts, over four years; a CS-3 has the price of"
        " a CS-2 (vendor). I0030 estimates 41.96",
        le=MOST_PRICE,
    )

    @model_validator(mode="after")
    def _waiting_takes_less(self) -> Self:
        if self.idle_kw and self.load_kw and self.idle_kw > self.load_kw:
            raise ConfigError(
                "a system that waits must not draw more than one that computes",
                code="idle-power-above-load",
                where="power.idle_kw",
                value=self.idle_kw,
                rule=f"at most power.load_kw, {self.load_kw:g}",
            )
        return self

    def of_system(self, name: str) -> SystemPowerSpec:
        """Return the power of a named system; one stated number changes the other in proportion."""
        known: SystemPowerSpec = PRESETS[name].spec
        share = known.idle_kw / known.load_kw
        load = self.load_kw or (self.idle_kw / share if self.idle_kw else known.load_kw)
        return SystemPowerSpec(idle_kw=self.idle_kw or load * share, load_kw=load)
