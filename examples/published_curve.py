"""Compare a study over batch sizes with measurements that somebody published.

python examples/published_curve.py --curve predicted.csv --rows T0005-T0008 --out published.png

The measurements are rows of validation/data/wse_training.csv, each with its source.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib.pyplot as plt

PUBLISHED = Path(__file__).parents[1] / "validation/data/wse_training.csv"
ENDS = ("samples_per_s_low", "samples_per_s_high")
"""Columns with the ends of the interval of 90 %."""


def published(rows: str, file: Path = PUBLISHED) -> dict[int, float]:
    """Return the measured samples/s for each batch size, of the rows from one to another."""
    first, _, last = rows.partition("-")
    with file.open(encoding="utf-8") as lines:
        chosen = [row for row in csv.DictReader(lines) if first <= row["row_id"] <= (last or first)]
    return {int(row["global_batch"]): float(row["value"]) for row in chosen}


def predicted(file: Path) -> dict[int, dict[str, float]]:
    """Return prediction and interval for each batch size, of the table of a study."""
    with file.open(encoding="utf-8") as lines:
        return {
            int(row["batch_size"]): {name: float(row[name]) for name in ("samples_per_s", *ENDS)}
            for row in csv.DictReader(lines)
            if row["feasible"] == "True"
        }


def compared(curve: dict[int, dict[str, float]], measured: dict[int, float]) -> list[str]:
    """Return a line for each measurement: prediction, error, and whether the interval holds it."""
    lines = ["batch  predicted  published   error  in the band"]
    for batch, value in measured.items():
        point = curve[batch]
        low, high = (point[end] for end in ENDS)
        error = point["samples_per_s"] / value - 1
        held = "yes" if low <= value <= high else "no"
        lines.append(
            f"{batch:5}  {point['samples_per_s']:9.1f}  {value:9.1f}  {error:+6.1%}  {held}"
        )
    return lines


def draw(path: Path, curve: dict[int, dict[str, float]], measured: dict[int, float]) -> None:
    """Draw the predicted curve with its band, and a cross for each measurement."""
    batches = list(curve)
    figure, axes = plt.subplots(figsize=(3.5, 2.5), layout="constrained")
    low, high = ([curve[batch][end] for batch in batches] for end in ENDS)
    axes.fill_between(batches, low, high, alpha=0.2, linewidth=0, label="90 % of runs")
    axes.plot(batches, [curve[batch]["samples_per_s"] for batch in batches], label="predicted")
    axes.plot(list(measured), list(measured.values()), "kx", label="published")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch size")
    axes.set_ylabel("samples/s")
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=200)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", type=Path, required=True, help="CSV file of a study")
    parser.add_argument("--rows", required=True, help="published rows: T0005-T0008")
    parser.add_argument("--out", type=Path, default=Path("published.png"), help="the picture")
    given = parser.parse_args()
    found, values = predicted(given.curve), published(given.rows)
    print("\n".join(compared(found, values)))
    draw(given.out, found, values)
    print(given.out)
