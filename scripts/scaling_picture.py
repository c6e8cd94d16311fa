"""Draw the scaling picture of the README: a simulated large model beside a measured small one.

    python -m scripts.scaling_curve --params params.yaml --num_csx 1,2,4,8 --steps 20 --out scaling
    python -m scripts.scaling_picture --params modelzoo/params/gpt3_1.3b.yaml \\
        --measured scaling/scaling.json --out docs/scaling.png

The simulated curves are those of ``run.py --simulate --sweep 1-64:x2 --system CS-2 CS-3``, without
and with ``--weak_scaling``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from appliance.spec import ClusterSpec
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.units import format_count, format_rate
from waferstream.reports import style
from waferstream.reports.curve.picture import DOTS, counts_axis, draw_rates
from waferstream.reports.curve.result import CurveResult
from waferstream.reports.curve.text import headline
from waferstream.scaling.sweep import SimulationRequest, parse_sweep
from waferstream.simulation.capturing import captured_studies
from waferstream.simulation.session import labels_of, simulate_study

SYSTEMS = ("CS-2", "CS-3")


@dataclass(frozen=True)
class MeasuredRuns:
    """Trained runs of one model on several numbers of systems, all with the same weights."""

    model: str
    parameters: int
    weights_sha256: str
    num_csx: tuple[int, ...]
    samples_per_s: tuple[float, ...]

    @classmethod
    def of(cls, curve: dict[str, Any]) -> MeasuredRuns:
        """Return the runs of a ``scaling.json``.

        Raises:
            ConfigError: The curve is not of training runs that end with the same weights.
        """
        training = curve["training"]
        if training is None or training["weights_sha256"] is None:
            raise ConfigError(
                "the measured curve must be of training runs with the same weights",
                code="curve-not-trained",
                where="--measured",
                value=training,
                rule="scaling.json of scripts.scaling_curve",
            )
        return cls(
            curve["model"]["name"],
            curve["model"]["parameters"],
            training["weights_sha256"],
            tuple(point["num_csx"] for point in curve["points"]),
            tuple(point["run"]["measured"]["samples_per_s"] for point in curve["points"]),
        )


def simulated(params_file: Path, counts: Sequence[int]) -> tuple[CurveResult, CurveResult]:
    """Return the strong and the weak scaling of a params file, with both systems in each."""
    params = load_params(params_file)
    clusters = [ClusterSpec.model_validate({"machine": {"system": one}}) for one in SYSTEMS]
    studies = captured_studies(params, clusters, counts)
    labels = labels_of(params, studies[0])

    def curve(weak: bool) -> CurveResult:
        first, *others = (
            simulate_study(
                replace(study, weak=weak), labels, tuple(counts), counts[0], SimulationRequest()
            )
            for study in studies
        )
        return replace(first, others=tuple(others))

    return curve(weak=False), curve(weak=True)


def scaling_picture(
    path: Path, strong: CurveResult, weak: CurveResult, measured: MeasuredRuns
) -> None:
    """Draw strong and weak scaling, simulated, and the measured runs, as PNG."""
    model = f"{strong.model.name}, {format_count(strong.model.parameters)} parameters"
    with style.picture(path, f"Scaling of {model}, simulated", 15.0, 5.0) as figure:
        axes = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.85))
        unit = "sequences"
        titles = (
            f"Strong scaling: {strong.batch_size:,} {unit} in all",
            f"Weak scaling: {weak.batch_size:,} {unit} for each system",
        )
        labels = []
        for panel, result, title in zip(axes, (strong, weak), titles, strict=False):
            labels.append(draw_rates(panel, result))
            bars = panel.get_title(loc="left").partition("; ")[2]
            panel.set_title(f"{title}\nsamples/s; {bars}", color=style.FAINT_INK)
        labels.append(_draw_measured(axes[2], measured))
        figure.draw_without_rendering()
        for panel, ends in zip(axes, labels, strict=True):
            style.label_ends(panel, ends)


def _draw_measured(axes: Axes, measured: MeasuredRuns) -> list[style.EndLabel]:
    axes.set_title(
        f"Measured: {format_count(measured.parameters)} parameters\n"
        f"samples/s of the host; weights equal ({measured.weights_sha256[:8]})",
        color=style.FAINT_INK,
    )
    counts_axis(axes, "emulated CS-2 systems", measured.num_csx)
    axes.plot(measured.num_csx, measured.samples_per_s, color=style.VERMILION, **DOTS)
    axes.set_ylim(0.0, 1.25 * max(measured.samples_per_s))
    last = measured.samples_per_s[-1]
    return [style.EndLabel(last, f"measured {format_rate(last, 3)}", style.VERMILION)]


def main() -> int:
    """Draw the picture of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--params", type=Path, required=True, help="params file to simulate")
    parser.add_argument("--measured", type=Path, required=True, help="scaling.json of runs")
    parser.add_argument("--sweep", default="1-64:x2", help="numbers of systems to simulate")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    typed = parser.parse_args()
    try:
        measured = MeasuredRuns.of(json.loads(typed.measured.read_text(encoding="utf-8")))
        strong, weak = simulated(typed.params, parse_sweep(typed.sweep, "--sweep"))
        scaling_picture(typed.out, strong, weak, measured)
    except WaferStreamError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"{headline(strong)}: {typed.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
