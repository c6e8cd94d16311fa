"""The result of a curve: one model and one global batch on several numbers of systems.

Two commands make one. ``run.py --simulate`` predicts a step at every point, without weights or
data; ``scripts/scaling_curve.py`` trains at every point. Both write it as JSON, the first as
``simulation.json``, the second as ``scaling.json``, with the fields of ``CurveResult``:

    version, commit, system, batch_size, tokens_per_sample, micro_batch
    model           name, parameters
    points          one entry for each number of systems, ascending
        num_csx, micro_batch_size, efficiency
        emulated    samples_per_s, step_ps, total_ps, attribution_ps {cause: picoseconds}
        prediction  null unless simulated: num_rounds, tokens_per_s, flops_per_s, utilisation,
                    sram_peak_bytes, recomputed_segments, swarmx_nodes, steps_ps, and overflow
                    {segment, sram_bytes, server_bytes}, null where the micro-batch fits
        bill        null without a token budget: tokens, duration_s, system_hours,
                    footprint {kwh, kg_co2e, usd}
        filled      null where a larger micro-batch would not be faster: micro_batch_size,
                    num_rounds, speed_up
        interval    half, nine_tenths (factors of samples_per_s either way), decades, nearest (the
                    calibrated row and its distance); reason and remedy where it is unknown
        energy      power_kw, draw {part: kW}, compute_share, and footprints: step, run,
                    per_million_samples, per_million_tokens, idle_hour
        run         null unless trained: weights_sha256, efficiency,
                    measured {samples_per_s, seconds, host}
    refused         numbers of systems without a point: num_csx, reason, code
    simulation      null unless simulated: stream_dtype, optimizer, as_published,
                    curve_s, detail {num_csx, tiers, wafer, sram_capacity_bytes, resident_bytes,
                    fits_sram, start_up, start_up_interval, layers, bill, effective_batch},
                    sparsity, overruled, machine
    training        null unless trained: num_steps, weights_sha256 (null if the runs disagree)
    others          curves of the same model and batch on other machines
    gpus            note, curves [{gpu, kind, points, per_million_tokens, intervals, extrapolated}];
                    null if not compared
    zeros           null unless measured: weights, samples, products [{layer, share, part}]
    weak            whether batch_size is that of each system
    packing         num_sequences, num_documents, num_tokens, length; null where nothing says it
    configuration   machine of a simulation; params, cluster, num_csx and steps of an experiment
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memoryx.tiers import Tiers
from waferstream.baselines.gpu.curve import GpuPoint, Kind
from waferstream.machine.energy import EnergyUse, Footprint
from waferstream.machine.intervals import AnyInterval
from waferstream.machine.sram import Overflow
from waferstream.machine.start_up import StartUp
from waferstream.reports.activation_zeros import ActivationZeros
from waferstream.reports.economics import TrainingBill
from waferstream.reports.machine.use import LayerGroup
from waferstream.reports.run.summary import Emulated, Measured, ModelSummary
from waferstream.workload.packing import Packing


@dataclass(frozen=True)
class PredictedStep:
    """A simulated step once the machine has reached a periodic state."""

    num_rounds: int
    tokens_per_s: float | None
    """None for a model that does not read tokens."""
    flops_per_s: float
    """Matrix products and attention of the model over all systems, recomputation not counted."""
    utilisation: float
    """``flops_per_s`` over the dense 16-bit peak of all systems."""
    sram_peak_bytes: int
    """Peak of activations and buffers on one system."""
    recomputed_segments: int
    swarmx_nodes: int
    steps_ps: tuple[int, ...]
    """Durations of all simulated steps, the first one included."""
    overflow: Overflow | None = None
    """What of the micro-batch has no room; None where it fits."""


@dataclass(frozen=True)
class TrainedRun:
    """A completed training run: its weights and its measured throughput."""

    weights_sha256: str
    measured: Measured
    efficiency: float
    """Measured throughput over the ideal, as ``CurvePoint.efficiency``."""


@dataclass(frozen=True)
class FilledWafer:
    """The same step with micro-batches that fill the wafer (policy ``fill_wafer``)."""

    micro_batch_size: int
    num_rounds: int
    speed_up: float


@dataclass(frozen=True)
class CurvePoint:
    """A training step on ``num_csx`` systems; ``emulated`` is of the systems that work longest."""

    num_csx: int
    micro_batch_size: int | None
    """Samples; None where a run chose its own size."""
    emulated: Emulated
    efficiency: float
    """Emulated throughput over the ideal: that of the first point, scaled by systems."""
    prediction: PredictedStep | None = None
    run: TrainedRun | None = None
    bill: TrainingBill | None = None
    """Of the token budget; None if no budget was given."""
    filled: FilledWafer | None = None
    """None where it would not be faster, or was not simulated."""
    interval: AnyInterval | None = None
    """Of the emulated throughput; None where nothing was emulated."""
    energy: EnergyUse | None = None
    """None where nothing was emulated."""


@dataclass(frozen=True)
class RefusedPoint:
    """A number of systems on which the step cannot run, and the error that a run would have."""

    num_csx: int
    reason: str
    code: str


def efficiencies(num_csx: Sequence[int], samples_per_s: Sequence[float]) -> list[float]:
    """Return throughputs relative to ideal scaling from the first point on."""
    first_per_system = samples_per_s[0] / num_csx[0]
    return [
        rate / count / first_per_system for count, rate in zip(num_csx, samples_per_s, strict=True)
    ]


def sweet_spots(points: Sequence[CurvePoint]) -> list[int]:
    """Return the numbers of systems that are more efficient than one system fewer and one more.

    The batch divides well there, so no system waits for a last, half-filled round.
    """
    efficiency = {point.num_csx: point.efficiency for point in points}
    return [
        count
        for count in efficiency
        if all(
            neighbour in efficiency and efficiency[neighbour] < efficiency[count]
            for neighbour in (count - 1, count + 1)
        )
    ]


@dataclass(frozen=True)
class PointDetail:
    """Memory, start-up, layers and cost of one point of a simulation."""

    num_csx: int
    tiers: Tiers
    """Masters, gradient sums and optimizer state in MemoryX."""
    wafer: str
    """The size of a wafer, in words."""
    sram_capacity_bytes: int
    """SRAM of a system for activations and buffers."""
    resident_bytes: int
    """SRAM needed to train without streaming: weights and gradients in stream precision, masters
    and optimizer state; no gradient sums."""
    fits_sram: bool
    """Whether one wafer could hold ``resident_bytes`` in the SRAM that code leaves."""
    start_up: StartUp
    start_up_interval: AnyInterval
    layers: tuple[LayerGroup, ...]
    bill: TrainingBill | None
    """Of the token budget; None if no budget was given."""
    effective_batch: str
    """Batch, micro-batches and micro-batch policy in one line."""


@dataclass(frozen=True)
class SimulationInfo:
    """What a simulation knows beyond its points."""

    stream_dtype: str
    optimizer: str
    as_published: bool
    """Whether cluster.yaml keeps all published numbers of the machine."""
    curve_s: float
    """Host seconds to simulate all points, without the capture."""
    detail: PointDetail
    sparsity: str = ""
    """Which zeros of sparse weights are charged; empty without sparse weights."""
    overruled: str = ""
    """Which numbers of cluster.yaml do not count, and what wins; empty where all of them do."""
    machine: str = ""
    """The name of the cluster, such as ``condor-galaxy-1``; empty where it has none."""


@dataclass(frozen=True)
class TrainingInfo:
    """What trained runs have in common."""

    num_steps: int
    weights_sha256: str | None
    """Digest of the final weights of all runs; None if the runs disagree."""


GPU_STRATEGIES: Mapping[Kind, str] = {
    "ddp": "DDP",
    "zero3": "ZeRO-3",
    "tensor+pipeline": "3D",
}
"""Parallelism strategies of GPU clusters as they are printed; 3D is tensor parallelism in a node,
a pipeline over nodes, and data parallelism."""


@dataclass(frozen=True)
class GpuCurve:
    """Modelled throughput of one parallelism strategy on one kind of GPU.

    A point at which the model does not fit has throughput 0; a count at which a GPU would have no
    sample has no point.
    """

    gpu: str
    kind: Kind
    points: tuple[GpuPoint, ...]
    per_million_tokens: tuple[Footprint | None, ...]
    """What a million tokens take at each point; None where the model does not fit."""
    intervals: tuple[AnyInterval, ...]
    """Those of the throughput of each point."""
    extrapolated: tuple[str, ...]
    """How each point lies beyond published runs; empty where it does not."""

    @property
    def name(self) -> str:
        """GPU and strategy: ``"H100 DDP"``."""
        return f"{self.gpu} {GPU_STRATEGIES[self.kind]}"

    @property
    def fitting(self) -> tuple[GpuPoint, ...]:
        """Points at which the model fits the GPUs' memory."""
        return tuple(point for point in self.points if point.fits)

    @property
    def published(self) -> tuple[GpuPoint, ...]:
        """Those of ``fitting`` that are no extrapolation."""
        return tuple(
            point
            for point, reason in zip(self.points, self.extrapolated, strict=True)
            if point.fits and not reason
        )


@dataclass(frozen=True)
class GpuComparison:
    """Curves of GPU clusters, possibly none, and a note on their accuracy or absence."""

    curves: tuple[GpuCurve, ...]
    note: str


@dataclass(frozen=True)
class CurveResult:
    """One model and one global batch on several numbers of systems of one kind."""

    version: str
    commit: str | None
    system: str
    model: ModelSummary
    batch_size: int
    """Samples of a step over all systems or, where ``weak``, of each system."""
    tokens_per_sample: int | None
    micro_batch: int | str
    """Configured micro-batch size, or the name of the policy that chooses it."""
    points: tuple[CurvePoint, ...]
    simulation: SimulationInfo | None = None
    training: TrainingInfo | None = None
    gpus: GpuComparison | None = None
    others: tuple[CurveResult, ...] = ()
    """Curves of the same model and batch on other machines."""
    zeros: ActivationZeros | None = None
    """Zeros among the activations of the model, where they were measured."""
    configuration: Mapping[str, Any] = field(default_factory=dict, repr=False)
    refused: tuple[RefusedPoint, ...] = ()
    """Numbers of systems of a sweep on which the step cannot run."""
    weak: bool = False
    """Whether every system gets a batch, so that the batch of a step grows with the systems."""
    packing: Packing | None = None
    """How full the sequences are; None where every place counts as a token."""

    @property
    def label(self) -> str:
        """The kind of systems, with the name of the cluster where it has one."""
        named = self.simulation is not None and self.simulation.machine
        return f"{self.system} of {named}" if named else self.system

    @property
    def intervals(self) -> dict[int, AnyInterval | None]:
        """The intervals of the points by number of systems."""
        return {point.num_csx: point.interval for point in self.points}

    @property
    def detailed(self) -> CurvePoint:
        """The point of a simulation that is predicted in detail."""
        assert self.simulation is not None
        num_csx = self.simulation.detail.num_csx
        return next(point for point in self.points if point.num_csx == num_csx)
