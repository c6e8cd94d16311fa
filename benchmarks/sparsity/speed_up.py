"""Draw the emulated speed-up by share of zeros beside published figures.

    python -m benchmarks.sparsity.speed_up --json benchmarks/results/sparse_speed_up.json \\
        --picture docs/sparsity.png

Two curves of a CS-2: one product of GPT-3 (12288 x 12288, 50,000 tokens), and a whole training
step of a published model, GPT-3 XL with 1.3B parameters, whose layers are sparse. Beside them
1 / density (Lie, Hot Chips 34, 2022: the product speeds up nearly so), the vendor's headline of 10
times at 90 % zeros, and the operations that sparse models save (rows of
validation/data/sparse_training.csv).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from memoryx.optim.cost import NO_UPDATE
from validation.families import sparse
from validation.families.sparse import sparse_densities
from validation.families.training import ADAMW
from validation.families.workloads import program_of
from validation.rows.reader import PUBLISHED, read_rows
from validation.rows.row import Row
from waferstream.core.program.micro_batches import FILL_WAFER
from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.core.program.segment import OpWork, Segment
from waferstream.host.files import write_json
from waferstream.machine.cost import segment_costs
from waferstream.machine.densities import StepSparsity
from waferstream.machine.hardware import MachineSpec
from waferstream.reports import style
from waferstream.reports.benchmark import new_file, new_result, positive
from waferstream.reports.curve.picture import DOTS
from waferstream.simulator.simulator import Simulator

MACHINE = MachineSpec()
DENSITIES = (1.0, 0.75, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
CLAIM = (0.1, 10.0)
"""Density and speed-up of the vendor's headline."""

Point = Mapping[str, float]


def product_speed_up(width: int, tokens: int) -> list[Point]:
    """Return the speed-up of one streamed product by density, and its error against 1 / density."""
    op = OpWork("mm", "matmul", 1, (1, tokens, width, width), streams=True)
    segment = Segment(0, "forward", "layer", ("w",), (), (), (), (), (), (op,))
    weight = TensorSpec("w", (width, width), "float32")
    program = Program(ProgramKind.EVAL, "", (weight,), "float16", (), 1, (segment,), 1, 1)

    def compute_ps(density: float) -> int:
        return segment_costs(program, MACHINE.system, {"w": density})[0].compute_ps

    dense_ps = compute_ps(1.0)
    return [_point(density, dense_ps / compute_ps(density)) for density in DENSITIES]


def step_speed_up(row: Row, batch_size: int, densities: Sequence[float]) -> list[Point]:
    """Return the speed-up of a step of a row's model on one system, by density.

    The step is a training step where the row trains, else a forward pass. Micro-batches fill the
    wafer.
    """
    trains = row.text("phase") == "train"
    program = program_of(row, ProgramKind.TRAIN if trains else ProgramKind.EVAL)
    smallest = program.smallest

    def step_ps(density: float) -> int:
        simulator = Simulator(
            program,
            MACHINE,
            update=ADAMW if trains else NO_UPDATE,
            sparsity=StepSparsity(sparse_densities(smallest, density)),
        )
        size = FILL_WAFER.size(batch_size, 1, simulator.largest_micro_batch)
        return simulator.predict(batch_size, size, 1).timing.duration_ps

    dense_ps = step_ps(1.0)
    return [_point(density, dense_ps / step_ps(density)) for density in densities]


def published_savings(batch_size: int) -> list[dict[str, Any]]:
    """Return published savings of operations, those counted here, and the emulated speed-up."""
    found = []
    for row in (row for path in PUBLISHED for row in read_rows(path)):
        sparsity = row.number("sparsity_pct") if row.kind == "training" else None
        if row.unit != "x fewer FLOPs" or not isinstance(row.value, float) or sparsity is None:
            continue
        density = 1 - sparsity / 100
        (emulated,) = step_speed_up(row.described(), batch_size, (density,))
        found.append(
            {
                "row": row.row_id,
                "workload": row.text("workload"),
                "density": density,
                "published": row.value,
                "counted": sparse.FAMILIES[0].predict(row.described()),
                "emulated": emulated["speed_up"],
                "error": emulated["speed_up"] / row.value - 1,
            }
        )
    return found


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw both curves over the published points."""
    with style.picture(path, "Zeros among weights, on an emulated CS-2", 8.5, 5.0) as figure:
        axes = figure.add_subplot()
        axes.set_title("times as fast; diamonds: times fewer operations", color=style.FAINT_INK)
        axes.set_xlabel("zeros among weights, %")
        axes.set_xticks(range(0, 100, 10))
        labels = [
            _draw_ideal(axes),
            _draw_curve(axes, result["product"], "a product of GPT-3", style.BLUE),
            _draw_curve(axes, result["step"], "a step of GPT-3 XL", style.ORANGE),
            *_draw_published(axes, result["published"]),
        ]
        figure.draw_without_rendering()
        style.label_ends(axes, labels)


def _draw_ideal(axes: Axes) -> style.EndLabel:
    """Draw 1 / density, and the vendor's headline, which lies on it."""
    zeros = [100 * (1 - density) for density in DENSITIES]
    ideal = [1 / density for density in DENSITIES]
    axes.plot(zeros, ideal, color=style.FAINT_INK, linewidth=1.2, linestyle=(0, (4, 3)))
    density, speed_up = CLAIM
    axes.plot(100 * (1 - density), speed_up, "*", color=style.FAINT_INK, markersize=12)
    return style.EndLabel(speed_up, "1 / density; star: vendor's headline", style.FAINT_INK)


def _draw_curve(axes: Axes, points: Sequence[Point], name: str, color: str) -> style.EndLabel:
    zeros = [100 * (1 - point["density"]) for point in points]
    speeds = [point["speed_up"] for point in points]
    axes.plot(zeros, speeds, color=color, **DOTS)
    return style.EndLabel(speeds[-1], f"{name}  {speeds[-1]:.1f}", color)


def _draw_published(axes: Axes, savings: Sequence[Mapping[str, Any]]) -> Iterator[style.EndLabel]:
    """Draw published savings of operations; yield their label, if there are any."""
    if not savings:
        return
    zeros = [100 * (1 - saving["density"]) for saving in savings]
    saved = [saving["published"] for saving in savings]
    axes.plot(zeros, saved, "D", color=style.GREEN, markeredgecolor="white", markersize=8)
    named = ", ".join(f"{value:g}" for value in saved)
    yield style.EndLabel(saved[-1], f"published for sparse models  {named}", style.GREEN)


def _point(density: float, speed_up: float) -> Point:
    return {"density": density, "speed_up": speed_up, "error": speed_up * density - 1}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute, write what was asked for, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--picture", type=new_file, help="file for the picture")
    parser.add_argument("--batch_size", type=positive, default=528, help="sequences of a step")
    options = parser.parse_args(arguments)
    result = new_result("How much faster is the emulated machine with zeros among weights?")
    rows = {row.row_id: row for path in PUBLISHED for row in read_rows(path)}
    result["product"] = product_speed_up(12288, 50_000)
    result["step"] = step_speed_up(rows["S0001"].described(), options.batch_size, DENSITIES)
    result["published"] = published_savings(options.batch_size)
    if options.json is not None:
        write_json(options.json, result)
    if options.picture:
        draw(result, options.picture)
    for name in ("product", "step"):
        for point in result[name]:
            print(
                f"{name}: density {point['density']:4.2f}, {point['speed_up']:5.2f} times as fast"
            )
    for saving in result["published"]:
        print(
            f"{saving['workload']}, density {saving['density']:.3f}: {saving['published']} times "
            f"fewer operations published, {saving['counted']:.2f} counted, emulated "
            f"{saving['emulated']:.2f} times as fast ({saving['error']:+.0%})"
        )


if __name__ == "__main__":
    main()
