"""Output of a simulation: text for the terminal, picture of a wafer, trace of a step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from waferstream.core.program.micro_batches import Cut
from waferstream.core.units import (
    counted,
    folded,
    format_bytes,
    format_ps,
    format_rate,
    format_short,
)
from waferstream.machine.intervals import Interval
from waferstream.machine.record import Record
from waferstream.machine.sram import SramReport, report_text, sram_course
from waferstream.machine.start_up import StartUp
from waferstream.machine.trace import Activities, write_trace
from waferstream.reports.amounts import energy_facts, format_duration, format_footprint
from waferstream.reports.curve.result import CurvePoint, CurveResult, PointDetail
from waferstream.reports.curve.text import headline, start_up_text, table_text
from waferstream.reports.kept_pictures import draw_once
from waferstream.reports.machine.use import LAYER_HEADER, layer_row
from waferstream.simulation.study import Study

log = logging.getLogger("waferstream")

TRACED_ROUNDS = 8
"""Rounds of a longer step that are traced: the others are alike."""

_WAFER_PICTURE = "waferstream.reports.machine.wafer_picture:wafer_picture"

_LONGER = f"the step has more than these {TRACED_ROUNDS} rounds; the others are alike"


def simulation_text(result: CurveResult, width: int | None = None) -> str:
    """Return the whole simulation as lines of text, its tables ``width`` characters wide."""
    compared = [
        f"{headline(other)}\n\n{table_text(other, width, result)}" for other in result.others
    ]
    settings = "\n".join(_settings(result))
    zeros = [] if result.zeros is None else ["\n".join(result.zeros.lines())]
    tables = (table_text(result, width), *compared, detail_text(result, width), *zeros)
    return "\n\n".join((settings, *tables))


def plan_text(result: CurveResult, memory: SramReport, width: int | None = None) -> str:
    """Return how the step of one number of systems lies on the machine, as lines of text.

    Args:
        result: The point.
        memory: The SRAM of one of its systems.
        width: Characters of a line of a table; None for any number.
    """
    settings, times = "\n".join(_settings(result)), "\n".join(_time_lines(result.detailed))
    return "\n\n".join((settings, times, detail_text(result, width), report_text(memory)))


def _time_lines(point: CurvePoint) -> Iterator[str]:
    """Yield what a step takes, and why."""
    prediction, rate = point.prediction, point.emulated.samples_per_s
    assert prediction is not None, "of a simulated point"
    shares = point.emulated.attribution_ps.shares()
    causes = ", ".join(f"{cause} {share:.1%}" for cause, share in shares.items() if share >= 5e-4)
    yield f"A step takes {format_ps(point.emulated.step_ps)}: {causes}"
    within = ""
    if isinstance(point.interval, Interval):
        low, high = point.interval.around(rate)
        within = f" (90 %: {format_short(low)} to {format_short(high)})"
    tokens = prediction.tokens_per_s
    read = "" if tokens is None else f", {format_short(tokens)} tokens/s"
    yield (
        f"{format_short(rate)} samples/s{within}{read}; "
        f"{prediction.flops_per_s / 1e12:.3g} TFLOP/s, {prediction.utilisation:.1%} of peak"
    )
    yield f"Weights stream {counted(prediction.num_rounds, 'time')} in a step"


def _settings(result: CurveResult) -> Iterator[str]:
    info = result.simulation
    assert info is not None
    yield headline(result)
    yield (
        f"Weights stream in {info.stream_dtype}; {info.optimizer}; "
        f"micro-batch: {result.micro_batch}"
    )
    if info.sparsity:
        yield f"{info.sparsity}; MemoryX keeps values and masks, at the run's largest density"
    yield f"On {counted(info.detail.num_csx, 'system')}: {info.detail.effective_batch}"


def detail_text(result: CurveResult, width: int | None = None) -> str:
    """Return memory, start-up, cost and layers of the point in detail, as lines of text."""
    assert result.simulation is not None
    detail = result.simulation.detail
    point = result.detailed
    lines = [
        f"{detail.num_csx:,} x {result.system} in detail",
        *_memory_lines(detail, point),
        f"  start-up  {start_up_text(detail)}",
        *_energy_lines(point, detail.start_up),
        *_bill_lines(detail),
        "",
        *folded([LAYER_HEADER, *(layer_row(group) for group in detail.layers)], width),
    ]
    return "\n".join(lines)


def _memory_lines(detail: PointDetail, point: CurvePoint) -> Iterator[str]:
    assert point.prediction is not None
    tiers, prediction = detail.tiers, point.prediction
    flash = f" and flash, {format_bytes(tiers.flash_bytes)} of it in flash"
    yield (
        f"  MemoryX   masters {format_bytes(tiers.masters.num_bytes)}, "
        f"gradient sums {format_bytes(tiers.sums.num_bytes)}, "
        f"optimizer state {format_bytes(tiers.state.num_bytes)}; "
        f"DRAM{flash if tiers.flash_bytes else ''}"
    )
    yield f"  SwarmX    {counted(prediction.swarmx_nodes, 'node')}"
    yield f"  wafer     {detail.wafer}"
    recomputed = f", {counted(prediction.recomputed_segments, 'layer')} recomputed"
    yield (
        f"  CS        activations and buffers {format_bytes(prediction.sram_peak_bytes)} of "
        f"{format_bytes(detail.sram_capacity_bytes)} that code leaves"
        f"{recomputed if prediction.recomputed_segments else ''}"
    )
    yield (
        "  streamed  weights, gradients, masters and state, "
        f"{format_bytes(detail.resident_bytes)}; "
        f"they {'would' if detail.fits_sram else 'would not'} fit there"
    )


def _energy_lines(point: CurvePoint, start_up: StartUp) -> Iterator[str]:
    if point.energy is not None:
        power, *parts = energy_facts(point.energy, start_up).items()
        yield f"  power     {power[1]}"
        for name, text in parts:
            yield f"  {name.lower().replace('1m', '1M'):<9} {text}"


def _bill_lines(detail: PointDetail) -> Iterator[str]:
    bill = detail.bill
    if bill is None:
        return
    yield (
        f"  training  {format_short(bill.tokens)} tokens take {format_duration(bill.duration_s)}, "
        f"{format_rate(bill.system_hours)} system hours, {format_footprint(bill.footprint)}"
    )


def draw_wafer(path: Path, study: Study, title: str, num_csx: int) -> None:
    """Draw the SRAM plan of one of ``num_csx`` systems as PNG."""
    size = study.micro_batch_size(num_csx)
    subtitle = f"one of {num_csx:,}, micro-batch of {size:,}"
    course = sram_course(study.simulator.sram_plan(size))
    draw_once(path, _WAFER_PICTURE, course, f"{title}: {subtitle}")


def trace_step(path: Path, study: Study, num_csx: int) -> None:
    """Write the second step as a trace; it starts while streams of the first step are under way."""
    costed = study.costed(num_csx)
    traced = min(costed.program.num_micro_batches, TRACED_ROUNDS * num_csx)
    batch = Cut(traced * costed.program.micro_batch_size, traced)
    record = Record()
    timing = study.simulator.cluster_timing(costed.with_cut(batch), num_csx, record)
    timing.step(costed.program.kind, 1)
    record.clear()
    timing.step(costed.program.kind, 2)
    is_cut = traced < costed.program.num_micro_batches
    write_trace(path, Activities(record), [_LONGER] if is_cut else [])
    cut = f" of {TRACED_ROUNDS} rounds" if is_cut else ""
    log.info("Trace of a step%s: %s (open it in ui.perfetto.dev)", cut, path)
