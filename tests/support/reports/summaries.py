"""Made-up results: summaries of runs, and curves of runs and of simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memoryx.tiers import Holding, Tiers
from waferstream.machine.attribution import Attribution
from waferstream.machine.energy import Draw, EnergyUse, Footprint
from waferstream.machine.intervals import AnyInterval, Interval, Unknown
from waferstream.machine.stalls import StreamCheck
from waferstream.machine.start_up import StartUp
from waferstream.reports.curve.result import (
    CurvePoint,
    CurveResult,
    PointDetail,
    PredictedStep,
    SimulationInfo,
)
from waferstream.reports.curve.runs import curve_of_runs
from waferstream.reports.economics import TrainingBill
from waferstream.reports.host import Host
from waferstream.reports.machine.use import LayerGroup
from waferstream.reports.run.summary import Emulated, Measured, ModelSummary, RunSummary

HOST = Host("Xeon <2>", cores=2, memory_bytes=8 << 30, python="3.11.2", torch="2.13.0")
DIGEST = "ab12" * 16
ENERGY = EnergyUse(
    power_kw=154.5,
    draw=Draw(
        systems_kw=88, memoryx_kw=5, swarmx_kw=5, activations_kw=4, hosts_kw=1, cooling_kw=51.5
    ),
    compute_share=0.875,
    step=Footprint(0.043, 0.02, 0.09),
    run=Footprint(43, 20, 90),
    per_million_samples=Footprint(447, 210, 937),
    per_million_tokens=Footprint(0.25, 0.12, 0.5),
    idle_hour=Footprint(120, 58, 224),
)
"""Of a made-up cluster of four systems."""


def summary(num_csx: int, compute_ps: int = 8_000_000, reduce_ps: int = 0) -> RunSummary:
    """Return a run of ten steps of batch 16; systems share the compute, not the reduce."""
    causes = Attribution(compute=10 * compute_ps // num_csx, reduce=10 * reduce_ps)
    return RunSummary(
        status="completed",
        mode="train",
        version="0.1.0",
        num_csx=num_csx,
        system="CS-2",
        model=ModelSummary("gpt2", 3_300_000),
        batch_size=16,
        micro_batch_size=2,
        first_step=1,
        last_step=10,
        train=((1, 5.5), (10, 4.25)),
        weights_sha256=DIGEST,
        measured=Measured(samples_per_s=32.0, seconds=5.0, host=HOST),
        emulated=Emulated(
            samples_per_s=160e12 / causes.total_ps,
            step_ps=causes.total_ps // 10,
            attribution_ps=causes,
            total_ps=causes.total_ps,
        ),
        start_up=StartUp(compile_ps=9, programming_ps=5, initial_weights_ps=3),
    )


INTERVAL = Interval(half=1.1, nine_tenths=1.25, decades=0.301, nearest="T0009")
UNKNOWN = Unknown("nobody measured it", "it would take a run")


def with_digest(run: RunSummary, digest: str) -> RunSummary:
    """Return the run with other final weights."""
    return replace(run, weights_sha256=digest)


def run_curve(*runs: RunSummary) -> CurveResult:
    """Return the curve of made-up runs."""
    return curve_of_runs(runs, micro_batch="auto", commit=None, configuration={})


def _simulated_point(count: int, causes: Attribution, bill: TrainingBill | None) -> CurvePoint:
    """Return what a made-up simulation states of a number of systems."""
    return CurvePoint(
        num_csx=count,
        micro_batch_size=3,
        emulated=Emulated(24.0 * count, causes.total_ps, causes, causes.total_ps),
        efficiency=1.0,
        prediction=PredictedStep(
            num_rounds=4,
            tokens_per_s=24576.0 * count,
            flops_per_s=1.5e15 * count,
            utilisation=0.2,
            sram_peak_bytes=3 << 30,
            recomputed_segments=7,
            swarmx_nodes=12,
            steps_ps=(causes.total_ps,),
        ),
        bill=bill,
        energy=ENERGY,
    )


def _simulated_detail(num_csx: int, bill: TrainingBill | None) -> PointDetail:
    """Return the details of a made-up simulation, whose decoder stalls."""
    stalled = StreamCheck("decoder.0", "forward", 1 << 30, 0, 10**10, 10**11)
    kept = StreamCheck("head", "forward", 1 << 20, 0, 10**10, 10**11)
    return PointDetail(
        num_csx=num_csx,
        tiers=Tiers(Holding(4 << 40), Holding(4 << 40), Holding(8 << 40, 1 << 40)),
        wafer="850,000 cores",
        sram_capacity_bytes=35 << 30,
        resident_bytes=15 << 40,
        fits_sram=False,
        start_up=StartUp(600 * 10**12, 110 * 10**12, 30 * 10**12),
        start_up_interval=INTERVAL,
        layers=(
            LayerGroup("decoder.0-127", 128, stalled, stalled.stream_ps, "buy"),
            LayerGroup("head", 1, kept, kept.stream_ps, ""),
        ),
        bill=bill,
        effective_batch="Effective batch size is 3072: 1024 x micro-batch 3 (policy: auto)",
    )


def simulated_curve(
    counts: Sequence[int],
    causes: Attribution,
    interval: AnyInterval | None = None,
    bill: TrainingBill | None = None,
) -> CurveResult:
    """Return a made-up simulation whose step has these causes on any number of systems."""
    points = tuple(
        replace(_simulated_point(count, causes, bill), interval=interval) for count in counts
    )
    detail = _simulated_detail(counts[-1], bill)
    return CurveResult(
        version="0.1.0",
        commit=None,
        system="CS-2",
        model=ModelSummary("gpt3", 1_008_000_000_000),
        batch_size=3072,
        tokens_per_sample=2048,
        micro_batch="auto",
        points=points,
        simulation=SimulationInfo("bfloat16", "AdamW", True, 0.5, detail),
    )
