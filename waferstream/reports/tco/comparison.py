"""The file of ``waferstream tco``: a project, its people, a site, and machines to compare.

Every number is an assumption with a range and a source; what a file leaves out has the defaults
below. Rates and powers of machines come from a simulation, or are stated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import PowerSpec
from waferstream.reports.tco.currency import Currency
from waferstream.reports.tco.estimates import (
    Amount,
    Estimate,
    Positive,
    PositiveEstimate,
    Share,
    ShareEstimate,
)

SECTIONS = ("project", "people", "site")
"""Sections of the file whose fields are assumptions."""

MOST_MACHINES = 1_000_000
"""Systems or GPUs of one machine; a SwarmX tree has fewer nodes."""

_SITE = PowerSpec()


class ProjectSpec(Config):
    """What is to be trained."""

    runs: Positive = PositiveEstimate(value=10, low=1, high=100, source="assumed")
    """Trainings of the whole project, failed ones and searches included."""
    tokens_per_run: Positive


class PeopleSpec(Config):
    """Who does it."""

    researchers: Amount = Estimate(value=3, low=1, high=10, source="assumed")
    """People who wait for results."""
    waiting_share: Share = ShareEstimate(value=0.25, low=0, high=0.75, source="assumed")
    """Share of their working hours that is lost while a training runs."""
    hour_usd: Amount = Estimate(
        value=110,
        low=60,
        high=250,
        source="140,910 USD a year (BLS, computer and information research scientists, median of "
        "2024), 40 % on top, 1,800 hours",
    )


class SiteSpec(Config):
    """Where the machines stand."""

    pue: Positive = PositiveEstimate(
        value=_SITE.pue, low=1.1, high=1.8, source="machine.power.pue: Uptime Institute, 2024"
    )
    grid_kg_per_kwh: Amount = Estimate(
        value=_SITE.grid_kg_per_kwh,
        low=0.03,
        high=0.713,
        source="machine.power.grid_kg_per_kwh: Ember, 2023; Norway to India",
    )
    kwh_usd: Amount = Estimate(
        value=_SITE.kwh_usd, low=0.05, high=0.2, source="machine.power.kwh_usd: EIA"
    )
    unused_share: Share = ShareEstimate(value=0.2, low=0, high=0.6, source="assumed")
    """Share of the hours of a machine in which nobody uses it, and which are paid."""


class MachineNeeds(Config):
    """What a kind of machine costs and asks of people."""

    hour_usd: Amount | None = None
    """Price of an hour of one system or GPU with its hosts, without energy."""
    set_up_h: Amount | None = None
    """Hours of people before the first training: port, parallelize, tune."""
    care_h: Amount | None = None
    """Hours of people for each training: start, watch, restart."""
    lost_share: Share | None = None
    """Share of a training's time that failures, checkpoints and evaluations take."""


class MachineChoice(MachineNeeds):
    """A number of systems or of GPUs."""

    name: str = Field(pattern=r"^[^.]+$")
    """The first part of its keys, so without a dot."""
    system: str | None = None
    """``CS-2`` or ``CS-3``."""
    gpu: str | None = None
    """A GPU of the comparison in a simulation, such as ``H100``."""
    count: PositiveInt = Field(le=MOST_MACHINES)
    """Systems or GPUs."""
    tokens_per_s: Positive | None = None
    """Throughput of all; by default that of the simulation."""
    computers_kw: Positive | None = None
    """Power of all with their hosts, without cooling; by default that of the simulation."""

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if (self.system is None) == (self.gpu is None):
            raise ConfigError(
                "a machine must have systems or GPUs",
                code="machine-of-no-kind",
                where=self.name,
                value=(self.system, self.gpu),
                rule="one of system and gpu",
            )
        return self


class Circumstances(Config):
    """Where, by whom and in which currency a project is done."""

    people: PeopleSpec = Field(default_factory=PeopleSpec)
    site: SiteSpec = Field(default_factory=SiteSpec)
    currency: Currency = Field(default_factory=Currency)
    """That of the sums that are told; prices are in dollars, as their keys say."""


class Comparison(Circumstances):
    """The whole file."""

    project: ProjectSpec
    simulation: Path | None = None
    """``simulation.json`` of the model on these machines; from the folder of this file."""
    machines: tuple[MachineChoice, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [*SECTIONS, *(machine.name for machine in self.machines)]
        if len(set(names)) < len(names):
            raise ConfigError(
                "machines must have different names",
                code="machine-named-twice",
                where="machines",
                value=names[len(SECTIONS) :],
                rule=f"each of its own, and none is {', '.join(SECTIONS)}",
            )
        return self
