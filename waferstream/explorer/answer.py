"""What the page shows for one setting of its knobs: plain data, small enough to keep many of them.

A curve has a point for each number of systems; what lies on a wafer, and what stalls it, depends on
the samples of a micro-batch alone, so both are listed once for each size that occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A step on so many systems."""

    systems: int
    micro_batch: int
    rounds: int
    samples_per_s: float
    tokens_per_s: float | None
    """None for a model that does not read tokens."""
    step_ps: int
    efficiency: float
    """Throughput over that of the first point, scaled by systems."""
    utilisation: float
    """Operations of the model over the peak of all systems."""
    causes: Mapping[str, float]
    """Share of the step by cause; causes without one are left out."""
    band: tuple[float, float] | None
    """Factors within which half and nine of ten measured values lie."""
    kw: float
    kwh_per_million: float
    """Of tokens, or of samples where a model reads none."""
    swarmx_nodes: int
    switches: tuple[int, ...]
    """Switches of each level of the tree, from the root down."""
    down: float
    up: float
    """Share of the time in which a link carries weights, and gradients."""


@dataclass(frozen=True)
class Wafer:
    """The SRAM of a wafer at its peak, for one micro-batch."""

    columns: int
    rows: int
    used: tuple[int, int]
    """Columns and rows that the largest products of a repeated layer take."""
    layer: str
    """That layer."""
    recomputed: int
    """Segments that run twice, to keep less."""
    capacity_bytes: int
    """SRAM with that of code."""
    pieces: Mapping[str, int]
    """Bytes by what they are for."""
    peak: str
    """Where the peak is."""


@dataclass(frozen=True)
class Stall:
    """Layers that are alike: whether their weights stream in the time in which they compute."""

    layers: str
    phase: str
    count: int
    stream_ps: int
    compute_ps: int
    bound: str
    remedy: str
    """The smallest sufficient changes; empty where nothing stalls."""


@dataclass(frozen=True)
class Gpus:
    """A kind of GPU with the fastest parallelism that fits, at each number of GPUs."""

    name: str
    points: tuple[tuple[int, float, float | None], ...]
    """GPUs, throughput, and the factor within which nine of ten measured values lie."""


@dataclass(frozen=True)
class Refused:
    """A number of systems that cannot run the step."""

    systems: int
    what: str
    code: str


@dataclass(frozen=True)
class Answer:
    """What the simulator says for one setting."""

    parameters: int
    system: str
    """The kind of systems."""
    at_rest: Mapping[str, float]
    """What the knobs of the machine are on these systems, where they are not moved."""
    points: tuple[Point, ...]
    refused: tuple[Refused, ...]
    band_note: str
    """Of which machine the band is, or why there is none; empty for the band of the machine."""
    wafers: Mapping[int, Wafer]
    """By the samples of a micro-batch."""
    stalls: Mapping[int, tuple[Stall, ...]]
    gpus: tuple[Gpus, ...]
    gpu_note: str
    yaml: str
    command: str
