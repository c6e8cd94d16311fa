"""What a simulation finds, as plain data: the whole of simulation.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict

from timing.attribution import Attribution
from waferstream.reports.economics import PriceSpec, TrainingBill
from waferstream.reports.error_bars import ErrorBar
from waferstream.reports.summary import ModelSummary
from wsc.core.program import Phase

SIMULATION_NAME = "simulation.json"


@dataclass(frozen=True)
class Point:
    """A step on ``num_csx`` systems once the machine has settled.

    ``attribution_ps`` is that of the busiest systems. ``flops_per_s`` counts the arithmetic of the
    model alone, ``utilisation`` is that over the dense 16-bit peak of all systems.
    """

    num_csx: int
    micro_batch_size: int
    num_rounds: int
    step_ps: int
    samples_per_s: float
    tokens_per_s: float | None
    flops_per_s: float
    utilisation: float
    efficiency: float
    """Pace over the ideal, which grows in proportion to systems from the first point on."""
    attribution_ps: Attribution
    sram_peak_bytes: int
    """Activations and buffers of a system at their most."""
    recomputed_segments: int
    swarmx_nodes: int
    steps_ps: tuple[int, ...]
    """Every step from the machine's first to the one of ``step_ps``."""


@dataclass(frozen=True)
class LayerCheck:
    """The no-stall condition of ``count`` equal layers; bytes and times are of one of them."""

    layer: str
    """Its path; of several with their numbers, ``decoder.0-11``, or * for many that are apart."""
    phase: Phase
    count: int
    weight_bytes: int
    gradient_bytes: int
    compute_ps: int
    stream_ps: int
    holds: bool
    cure: str
    """The least change of each kind that would help; empty where the condition holds."""


@dataclass(frozen=True)
class Memory:
    """What each kind of room holds."""

    masters_bytes: int
    gradient_sums_bytes: int
    optimizer_state_bytes: int
    memoryx_tier: Literal["DRAM", "DRAM and flash"]
    memoryx_flash_bytes: int
    """Of the three above, how much lies in flash."""
    sram_room_bytes: int
    """What a system has for them."""
    resident_bytes: int
    """Weights and gradients as they would stream, masters and state: what a wafer would hold to
    train without streaming, whose update takes each gradient as it comes and keeps no sum."""
    fits_sram: bool
    """Whether one wafer could hold that."""


@dataclass(frozen=True)
class Starting:
    """From the command to the first step."""

    compile_ps: int
    programming_ps: int
    initial_weights_ps: int
    total_ps: int


@dataclass(frozen=True)
class Detail:
    """One point, looked at closely."""

    num_csx: int
    memory: Memory
    starting: Starting
    layers: tuple[LayerCheck, ...]
    bill: TrainingBill | None
    """For the token budget that was given."""
    prices: PriceSpec
    effective_batch: str
    """Batch, micro-batches and micro-batch policy in one line."""
    fill_wafer_size: int | None
    """Samples per micro-batch of ``fill_wafer``, where ``auto`` takes fewer."""


@dataclass(frozen=True)
class Simulation:
    """One model on one kind of machine, over numbers of systems."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    version: str
    commit: str | None
    system: str
    model: ModelSummary
    batch_size: int
    tokens_per_sample: int | None
    micro_batch_size: int | str
    """As asked for."""
    stream_dtype: str
    optimizer: str
    points: tuple[Point, ...]
    detail: Detail
    error_bar: ErrorBar | None
    """Of the pace, as published runs on this kind of system show it; None where there are none."""
    as_published: bool
    """Whether cluster.yaml leaves every number of the machine as it is published."""
    curve_s: float
    """Seconds that all points took on this computer, capture apart."""
    machine: dict[str, Any] = field(repr=False)

    @property
    def point(self) -> Point:
        """The one of ``detail``."""
        return next(point for point in self.points if point.num_csx == self.detail.num_csx)
