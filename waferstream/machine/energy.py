"""Energy of a cluster, its carbon dioxide and its cost, from the causes of emulated time.

A system draws its power under load while kernels compute, for whatever else it does the power of
one that waits: streams that arrive and kernels that start keep few PEs busy.
"""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.units import seconds
from waferstream.machine.attribution import TimedSteps
from waferstream.machine.hardware.machine import MachineSpec
from waferstream.machine.hardware.power import PowerSpec

SECONDS_PER_HOUR = 3600

_MILLION = 1e6


@dataclass(frozen=True)
class Footprint:
    """What some work takes."""

    kwh: float
    kg_co2e: float
    usd: float
    """Of energy and of the hours of all systems."""

    def times(self, factor: float) -> Footprint:
        """Return the footprint of ``factor`` times the work."""
        return Footprint(self.kwh * factor, self.kg_co2e * factor, self.usd * factor)


@dataclass(frozen=True)
class Draw:
    """Mean power of the parts of a cluster."""

    systems_kw: float
    memoryx_kw: float
    swarmx_kw: float
    activations_kw: float
    hosts_kw: float
    """That read samples and manage."""
    cooling_kw: float

    @property
    def total_kw(self) -> float:
        """Power of all parts."""
        return float(sum(vars(self).values()))


@dataclass(frozen=True)
class EnergyUse:
    """Power of a cluster that trains, and what its steps take."""

    power_kw: float
    """Sum of ``draw``."""
    draw: Draw
    compute_share: float
    """Share of the systems' time in which kernels compute."""
    step: Footprint
    run: Footprint
    """Of all steps of the run; of one step where their number is not known."""
    per_million_samples: Footprint
    per_million_tokens: Footprint | None
    """None for a model that does not read tokens."""
    idle_hour: Footprint
    """Of the cluster while no kernel computes, as in a start-up."""

    def start_up(self, duration_ps: int) -> Footprint:
        """Return what a start-up takes, which comes on top of the run."""
        return self.idle_hour.times(seconds(duration_ps) / SECONDS_PER_HOUR)


def cluster_draw(
    machine: MachineSpec, num_csx: int, swarmx_nodes: int, compute_share: float
) -> Draw:
    """Return the mean power of a cluster.

    Args:
        machine: The emulated machine.
        num_csx: Number of systems.
        swarmx_nodes: Number of nodes between them and MemoryX.
        compute_share: Share of the systems' time in which kernels compute.
    """
    power = machine.power
    computers = (
        num_csx * power.of_system(machine.system.name).mean_kw(compute_share),
        power.memoryx_hosts * power.host_kw,
        swarmx_nodes * power.host_kw,
        num_csx * machine.activations.servers * power.host_kw,
        num_csx * power.hosts_per_system * power.host_kw,
    )
    return Draw(*computers, (power.pue - 1) * sum(computers))


def hour_of(site: PowerSpec, kw: float, hire_usd: float) -> Footprint:
    """Return what an hour of a machine takes at a site.

    Args:
        site: Carbon dioxide and price of energy.
        kw: Power of the machine, cooling included.
        hire_usd: Price of an hour of it without energy.
    """
    return Footprint(kw, kw * site.grid_kg_per_kwh, kw * site.kwh_usd + hire_usd)


def compute_share(timed: TimedSteps, num_csx: int) -> float:
    """Return the share of the time of all systems in which kernels compute."""
    assert timed.last is not None, "a share needs a step"
    busy = timed.last.num_busy
    computed_ps = busy * timed.attribution.compute + (num_csx - busy) * timed.spare.compute
    return computed_ps / (num_csx * timed.attribution.total_ps)


def energy_use(
    machine: MachineSpec,
    num_csx: int,
    swarmx_nodes: int,
    timed: TimedSteps,
    tokens_per_sample: float | None,
    num_steps: int | None = None,
) -> EnergyUse:
    """Return the energy of training.

    Args:
        machine: The emulated machine.
        num_csx: Number of systems.
        swarmx_nodes: Number of nodes between them and MemoryX.
        timed: Emulated steps, at least one.
        tokens_per_sample: Mean tokens of a sample; None for a model that does not read tokens.
        num_steps: Steps of the whole run; by default those of ``timed``.
    """
    share, hire_usd = compute_share(timed, num_csx), num_csx * machine.power.system_hour_usd
    idle, draw = (cluster_draw(machine, num_csx, swarmx_nodes, each) for each in (0.0, share))
    idle_hour, hour = (hour_of(machine.power, each.total_kw, hire_usd) for each in (idle, draw))
    steps = hour.times(seconds(timed.attribution.total_ps) / SECONDS_PER_HOUR)
    step = steps.times(1 / timed.num_steps)
    samples = steps.times(_MILLION / timed.num_samples)
    tokens = None if tokens_per_sample is None else samples.times(1 / tokens_per_sample)
    run = step.times(num_steps or timed.num_steps)
    return EnergyUse(draw.total_kw, draw, share, step, run, samples, tokens, idle_hour)
