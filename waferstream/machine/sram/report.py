"""Report an SRAM plan layer by layer, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from waferstream.core.program.program import BYTES_PER_ELEMENT, Program
from waferstream.core.program.segment import OpWork, Segment
from waferstream.core.units import aligned, format_bytes
from waferstream.machine.kernels import Grid
from waferstream.machine.sram.plan import SramPlan, largest_with_recompute
from waferstream.machine.sram.space import code_bytes, data_bytes, describe, lives, stash_by_layer


@dataclass(frozen=True)
class LayerReport:
    """One layer, forward and backward together.

    ``weight_bytes`` stream through the wafer in a forward pass, which keeps ``stash_bytes`` for
    other segments; ``working_bytes`` is the largest working set of its segments. In products
    with streamed weights, activations are on up to ``columns`` x ``rows`` PEs, features along the
    columns and tokens down the rows; ``utilisation`` is the mean load of all PEs over that of the
    fullest one, weighted by the time of each product. All three are 0 without such products.
    """

    layer: str
    weight_bytes: int
    stash_bytes: int
    working_bytes: int
    is_recomputed: bool
    columns: int
    rows: int
    utilisation: float


@dataclass(frozen=True)
class SramReport:
    """A program on a wafer; bytes are of the whole wafer, for one micro-batch.

    At the peak, stash, working set and the buffers of streams share the capacity that code leaves.
    ``largest_micro_batch`` would fit if all layers were recomputed.
    """

    system: str
    wafer: str
    mode: str
    micro_batch_size: int
    largest_micro_batch: int
    sram_bytes: int
    code_bytes: int
    capacity_bytes: int
    peak_bytes: int
    peak_stash_bytes: int
    peak_working_bytes: int
    peak_buffer_bytes: int
    peak_at: str
    grid_pes: int
    layers: tuple[LayerReport, ...]


@dataclass(frozen=True)
class SramCourse:
    """The SRAM of a wafer over the segments of a micro-batch, in bytes."""

    report: SramReport
    columns: int
    """PEs of a row of the fabric."""
    rows: int
    cores: int
    peak_segment: int
    stash_by_layer: tuple[int, ...]
    """At the peak, of each layer that has one there."""
    stash: tuple[int, ...]
    """At each segment, as the next two."""
    working: tuple[int, ...]
    buffers: tuple[int, ...]


def sram_course(sram_plan: SramPlan) -> SramCourse:
    """Return what a plan keeps in SRAM at each segment."""
    wafer, samples = sram_plan.wafer, sram_plan.program.micro_batch_size
    at_peak = stash_by_layer(sram_plan.program, sram_plan.peak).values()
    return SramCourse(
        report=sram_report(sram_plan),
        columns=wafer.fabric.columns,
        rows=wafer.fabric.rows,
        cores=wafer.cores,
        peak_segment=sram_plan.peak.segment,
        stash_by_layer=tuple(footprint.of(samples) for footprint in at_peak),
        stash=tuple(moment.stash.of(samples) for moment in sram_plan.moments),
        working=tuple(moment.working.of(samples) for moment in sram_plan.moments),
        buffers=tuple(sram_plan.buffers),
    )


def sram_report(sram_plan: SramPlan, grid: Grid | None = None) -> SramReport:
    """Return the numbers of a plan; ``dataclasses.asdict`` makes plain data of them.

    ``grid`` is the layout of activations, by default the hidden features along whole rows.
    """
    program, wafer, peak = sram_plan.program, sram_plan.wafer, sram_plan.peak
    grid = grid or Grid.whole(wafer.fabric)
    samples = program.micro_batch_size
    at = program.segments[peak.segment]
    return SramReport(
        system=wafer.name,
        wafer=describe(wafer),
        mode=program.kind,
        micro_batch_size=samples,
        largest_micro_batch=largest_with_recompute(program, sram_plan.machine),
        sram_bytes=wafer.sram_bytes,
        code_bytes=code_bytes(wafer),
        capacity_bytes=data_bytes(wafer),
        peak_bytes=sram_plan.peak_bytes,
        peak_stash_bytes=peak.stash.of(samples),
        peak_working_bytes=peak.working.of(samples),
        peak_buffer_bytes=sram_plan.buffers[peak.segment],
        peak_at=f"{at.layer} {at.phase}",
        grid_pes=grid.fabric.num_pes,
        layers=tuple(_layers(sram_plan, grid)),
    )


def _layers(sram_plan: SramPlan, grid: Grid) -> Iterator[LayerReport]:
    program, samples = sram_plan.program, sram_plan.program.micro_batch_size
    working = {moment.segment: moment.working for moment in sram_plan.moments}
    stash: dict[int, int] = {}
    for life in lives(program):
        stash[life.producer] = stash.get(life.producer, 0) + life.footprint.of(samples)
    by_layer: dict[str, list[Segment]] = {}
    for segment in program.segments:
        by_layer.setdefault(segment.layer, []).append(segment)
    for layer, segments in by_layer.items():
        forward = [segment for segment in segments if segment.phase == "forward"]
        products = [work for segment in segments for work in segment.work if _is_streamed(work)]
        columns, rows = _extent(products, grid)
        yield LayerReport(
            layer=layer,
            weight_bytes=sum(_weight_bytes(program, segment) for segment in forward),
            stash_bytes=sum(stash.get(segment.index, 0) for segment in forward),
            working_bytes=max(working[segment.index].of(samples) for segment in segments),
            is_recomputed=any(segment.index in sram_plan.recomputed for segment in forward),
            columns=columns,
            rows=rows,
            utilisation=_utilisation(products, grid),
        )


def product_extent(segment: Segment, grid: Grid) -> tuple[int, int]:
    """Return on how many columns and rows the activations of a segment's products lie."""
    return _extent([work for work in segment.work if _is_streamed(work)], grid)


def _extent(products: Sequence[OpWork], grid: Grid) -> tuple[int, int]:
    columns = max((_columns(work, grid) for work in products), default=0)
    return columns, max((_rows(work, grid) for work in products), default=0)


def _weight_bytes(program: Program, segment: Segment) -> int:
    return program.num_elements(segment.weights) * BYTES_PER_ELEMENT[program.stream_dtype]


def _is_streamed(work: OpWork) -> bool:
    return work.kind == "matmul" and work.streams and work.flops > 0


def _tile(work: OpWork, grid: Grid) -> tuple[int, int, int, int]:
    """Return tokens and features of the activations, then of those on the fullest PE."""
    batch, rows, inner, _ = work.shape
    tokens = batch * rows
    return tokens, inner, grid.tokens(tokens), grid.features(inner)


def _columns(work: OpWork, grid: Grid) -> int:
    _, features, _, local_features = _tile(work, grid)
    return grid.replicas_per_row * -(-features // local_features)


def _rows(work: OpWork, grid: Grid) -> int:
    tokens, _, local_tokens, _ = _tile(work, grid)
    return min(grid.fabric.rows, -(-tokens // local_tokens))


def _utilisation(products: Sequence[OpWork], grid: Grid) -> float:
    if not products:
        return 0.0
    time_if_all_full = 0.0
    for work in products:
        tokens, features, local_tokens, local_features = _tile(work, grid)
        load = tokens * features / (local_tokens * local_features * grid.fabric.num_pes)
        time_if_all_full += work.flops / load
    return sum(work.flops for work in products) / time_if_all_full


def report_text(report: SramReport) -> str:
    """Return the report as text; neighbours that differ only in their names share a line."""
    rows = [
        ("layer", "weights", "stash", "working set", "recomputed", "PEs", "utilisation"),
        *(_row(layer, report.grid_pes) for layer in _folded(report.layers)),
    ]
    return "\n".join([*_head(report), "", *aligned(rows)])


def _head(report: SramReport) -> Iterator[str]:
    yield (
        f"{report.system}, {report.mode}: micro-batch of {report.micro_batch_size}; with all "
        f"layers recomputed, {report.largest_micro_batch} would fit"
    )
    yield f"  {report.wafer}"
    free = report.capacity_bytes - report.peak_bytes
    for name, num_bytes in (
        ("SRAM", report.sram_bytes),
        ("code and runtime", report.code_bytes),
        (f"stash at the peak ({report.peak_at})", report.peak_stash_bytes),
        ("working set there", report.peak_working_bytes),
        ("weights and gradients passing", report.peak_buffer_bytes),
        ("free" if free >= 0 else "missing", abs(free)),
    ):
        yield f"  {format_bytes(num_bytes):>10}  {name}"


def _row(layer: LayerReport, grid_pes: int) -> tuple[str, ...]:
    return (
        layer.layer,
        format_bytes(layer.weight_bytes),
        format_bytes(layer.stash_bytes),
        format_bytes(layer.working_bytes),
        "yes" if layer.is_recomputed else "no",
        f"{layer.columns * layer.rows / grid_pes:.0%}",
        f"{layer.utilisation:.0%}",
    )


def _folded(layers: Iterable[LayerReport]) -> Iterator[LayerReport]:
    for _, alike in groupby(layers, lambda layer: replace(layer, layer="")):
        first, *rest = alike
        name = f"{first.layer} to {rest[-1].layer}" if rest else first.layer
        yield replace(first, layer=name)
