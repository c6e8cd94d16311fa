"""A simulation for people: what was simulated, a table of points, and one point in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from timing.attribution import Attribution
from waferstream.reports.economics import SECONDS_PER_DAY, SECONDS_PER_HOUR
from waferstream.simulation.results import Detail, LayerCheck, Point, Simulation
from wsc.core.tables import aligned
from wsc.core.units import counted, format_bytes, format_count, format_ps, format_rate, seconds

_VISIBLE = 0.0005
"""A cause with a smaller share in every row has no column."""
_CHANGED = " They ran on the machine as published, of which cluster.yaml changes numbers."


def simulation_text(simulation: Simulation) -> str:
    """The whole simulation as lines."""
    parts = (
        _settings(simulation),
        [*aligned(_table(simulation)), *_footnotes(simulation)],
        _detail(simulation),
        aligned(_layers(simulation.detail.layers)),
    )
    return "\n\n".join("\n".join(part) for part in parts)


def headline(simulation: Simulation) -> str:
    """Model, batch and machine in one line."""
    sequence = f" of {simulation.tokens_per_sample:,}" if simulation.tokens_per_sample else ""
    unit = "sequence" if simulation.tokens_per_sample else "sample"
    return (
        f"{simulation.model.name}, {format_count(simulation.model.parameters)} parameters, "
        f"batch of {counted(simulation.batch_size, unit)}{sequence}, on {simulation.system}"
    )


def _settings(simulation: Simulation) -> Iterator[str]:
    yield headline(simulation)
    yield (
        f"Weights stream in {simulation.stream_dtype}; {simulation.optimizer}; "
        f"micro-batch: {simulation.micro_batch_size}"
    )
    detail = simulation.detail
    yield f"On {counted(detail.num_csx, 'system')}: {detail.effective_batch}"
    if detail.fill_wafer_size is not None:
        yield (
            f"Policy auto leaves the wafer unfilled, where {detail.fill_wafer_size:,} samples fit "
            "at a time; to simulate a filled wafer set csx.performance.micro_batch_size: fill_wafer"
        )


def _table(simulation: Simulation) -> Iterator[Sequence[str]]:
    causes = [
        field.name
        for field in fields(Attribution)
        if any(point.attribution_ps.shares()[field.name] >= _VISIBLE for point in simulation.points)
    ]
    bill = simulation.detail.bill
    yield (
        "systems", "micro-batch", "rounds", "step", "samples/s", "tokens/s", "PFLOP/s", "of peak",
        "efficiency", *causes, "SRAM peak", "recomputed", "SwarmX nodes",
        *(["training"] if bill else []),
    )  # fmt: skip
    for point in simulation.points:
        yield (*_row(point, causes), *([_training(point, bill.tokens)] if bill else []))


def _training(point: Point, tokens: float) -> str:
    """How long so many tokens take."""
    assert point.tokens_per_s is not None, "a bill is for a model that reads tokens"
    return _duration(tokens / point.tokens_per_s)


def _row(point: Point, causes: Sequence[str]) -> Sequence[str]:
    shares = point.attribution_ps.shares()
    return (
        f"{point.num_csx:,}",
        f"{point.micro_batch_size:,}",
        f"{point.num_rounds:,}",
        format_ps(point.step_ps),
        format_rate(point.samples_per_s),
        "-" if point.tokens_per_s is None else format_rate(point.tokens_per_s),
        format_rate(point.flops_per_s / 1e15, digits=3),
        f"{point.utilisation:.1%}",
        f"{point.efficiency:.1%}",
        *(f"{shares[cause]:.1%}" for cause in causes),
        format_bytes(point.sram_peak_bytes),
        f"{point.recomputed_segments}",
        f"{point.swarmx_nodes:,}",
    )


def _footnotes(simulation: Simulation) -> Iterator[str]:
    yield (
        "PFLOP/s: matrix products and attention, recomputed ones once. Shares: of the busiest "
        "systems' step. Efficiency: pace over that of the first row, grown with the systems."
    )
    yield _error_bar(simulation)
    yield f"{counted(len(simulation.points), 'point')} in {simulation.curve_s:.2f} s."


def _error_bar(simulation: Simulation) -> str:
    bar = simulation.error_bar
    if bar is None:
        system = simulation.system
        return f"Error bar: unknown, no published run on a {system} is left to check against."
    return (
        f"Error bar: nine of ten published runs on one {bar.system} lie within "
        f"{bar.nine_of_ten:.0%} of their prediction ({bar.runs} runs, none of them fitted; mean "
        f"{bar.mean:.1%}, worst {bar.worst:.0%})." + ("" if simulation.as_published else _CHANGED)
    )


def _detail(simulation: Simulation) -> Iterator[str]:
    detail, point = simulation.detail, simulation.point
    memory, starting = detail.memory, detail.starting
    yield f"{detail.num_csx:,} x {simulation.system} in detail"
    held = (
        f"masters {format_bytes(memory.masters_bytes)}, "
        f"gradient sums {format_bytes(memory.gradient_sums_bytes)}, "
        f"optimizer state {format_bytes(memory.optimizer_state_bytes)}"
    )
    in_flash = f", {format_bytes(memory.memoryx_flash_bytes)} of it in flash"
    yield f"  MemoryX   {held}; {memory.memoryx_tier}" + (
        in_flash if memory.memoryx_flash_bytes else ""
    )
    yield f"  SwarmX    {counted(point.swarmx_nodes, 'node')}"
    yield (
        f"  CS        activations and buffers {format_bytes(point.sram_peak_bytes)} of "
        f"{format_bytes(memory.sram_room_bytes)} of SRAM"
        + (
            f", {counted(point.recomputed_segments, 'layer')} recomputed"
            if point.recomputed_segments
            else ""
        )
    )
    yield (
        f"  streaming spares the wafer {format_bytes(memory.resident_bytes)} of weights, "
        "gradients, masters and state, which "
        f"{'would' if memory.fits_sram else 'would not'} fit"
    )
    yield (
        f"  start     {_duration(seconds(starting.total_ps))}: "
        f"compile {_duration(seconds(starting.compile_ps))}, "
        f"then programming {_duration(seconds(starting.programming_ps))} while initial weights "
        f"take {_duration(seconds(starting.initial_weights_ps))}"
    )
    yield from _bill(detail)


def _bill(detail: Detail) -> Iterator[str]:
    bill, prices = detail.bill, detail.prices
    if bill is None:
        return
    energy = f", {format_rate(bill.energy_kwh)} kWh" if bill.energy_kwh else ""
    yield (
        f"  training  {format_count(bill.tokens)} tokens take {_duration(bill.duration_s)}, "
        f"{format_rate(bill.system_hours)} system hours{energy}, cost {format_rate(bill.cost)}"
    )
    yield (
        f"            illustrative prices, not an offer: {prices.system_hour:g} per system hour, "
        f"{prices.system_kw:g} kW per system, {prices.kwh:g} per kWh"
    )


def _duration(duration_s: float) -> str:
    """In seconds, minutes, hours or days, each up to two of the next."""
    if duration_s < 120:
        return f"{duration_s:.0f} s"
    if duration_s < 2 * SECONDS_PER_HOUR:
        return f"{duration_s / 60:.0f} min"
    if duration_s < 2 * SECONDS_PER_DAY:
        return f"{duration_s / SECONDS_PER_HOUR:.1f} h"
    return f"{duration_s / SECONDS_PER_DAY:,.1f} days"


def _layers(layers: Sequence[LayerCheck]) -> Iterator[Sequence[str]]:
    yield (
        "layers", "phase", "count", "weights", "gradients", "streams in", "computes in", "stalls",
        "cure",
    )  # fmt: skip
    for check in layers:
        yield (
            check.layer,
            check.phase,
            f"{check.count}",
            format_bytes(check.weight_bytes),
            format_bytes(check.gradient_bytes),
            format_ps(check.stream_ps),
            format_ps(check.compute_ps),
            "no" if check.holds else "yes",
            check.cure,
        )
