"""Prices and other assumptions for machines that a command names, from a file and as typed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import Field

from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.reports.tco.comparison import Circumstances, MachineNeeds
from waferstream.reports.tco.currency import parse_price

_SECTIONS: Mapping[str, tuple[str, str]] = {
    "kwh": ("site", "kwh_usd"),
    "person": ("people", "hour_usd"),
}
"""What has a price beside machines: section and key."""


class Prices(Circumstances):
    """A file of assumptions: those of people and site, the currency, and needs of machines."""

    machines: dict[str, MachineNeeds] = Field(default_factory=dict)
    """By the name of a system or GPU: ``CS-3``, ``H100``."""

    def needs(self, machine: str) -> MachineNeeds:
        """Return what is stated of a machine."""
        return self.machines.get(machine, MachineNeeds())


def with_price(prices: Prices, typed: str, where: str, machines: Collection[str]) -> Prices:
    """Return prices with a typed one, such as ``H100=2.5EUR`` an hour or ``kwh=0.21EUR``.

    Args:
        prices: Those so far.
        typed: What is priced, and its price with the currency.
        where: The flag, for errors.
        machines: Names of systems and GPUs.

    Raises:
        ConfigError: It names neither, or is no price with a currency.
    """
    written, _, amount = typed.partition("=")
    known = {name.lower(): name for name in (*machines, *_SECTIONS)}
    name = known.get(written.strip().lower())
    if name is None:
        raise ConfigError(
            "a price must be that of a machine, of energy or of people",
            code="price-of-nothing",
            where=where,
            value=typed,
            rule=f"NAME=PRICE for one of {', '.join(known.values())}",
            remedy=did_you_mean(written, list(known.values())),
        )
    price = parse_price(amount, f"{where} {name}", prices.currency)
    section, key = _SECTIONS.get(name, ("machines", "hour_usd"))
    data: dict[str, Any] = prices.model_dump(exclude_unset=True)
    inside = data.setdefault(section, {})
    target = inside.setdefault(name, {}) if section == "machines" else inside
    target[key] = price.model_dump(exclude_unset=True)
    return validate(Prices, data, where)
