"""Picture of load: throughput against the speed of a user, time to the first token, and batches.

matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from waferstream.core.units import format_rate, format_short
from waferstream.machine.regions.weight_streaming import WeightStreaming, resident_tokens_per_s
from waferstream.reports import style
from waferstream.reports.service.load import LoadReport

_DOTS: dict[str, Any] = {"marker": "o", "markersize": 6, "markeredgecolor": "white"}
_BATCHES = [round(10 ** (exponent / 4)) for exponent in range(17)]


def load_picture(path: Path, report: LoadReport) -> None:
    """Draw what a service does under load."""
    layout = report.service.layout
    title = f"{report.name} on {layout.num_wafers} {report.service.spec.system.name} under load"
    with style.picture(path, title, 14.0, 4.8) as figure:
        speeds, firsts, batches = figure.subplots(1, 3)
        labels = [
            (speeds, _draw_speeds(speeds, report)),
            (firsts, _draw_firsts(firsts, report)),
            (batches, _draw_batches(batches, report)),
        ]
        style.lay_out(figure)
        for axes, of_axes in labels:
            style.label_ends(axes, of_axes)


def _draw_speeds(axes: Axes, report: LoadReport) -> list[style.EndLabel]:
    """Draw tokens/s of all users against those of one, of wafers and of GPUs."""
    axes.set_title("Tokens/s of all users, by those of one", color=style.FAINT_INK)
    ours = [(point.speed_p50, point.tokens_per_s) for point in report.points]
    theirs = [(point.speed, point.tokens_per_s) for point in report.gpu_points()]
    labels = []
    for points, name, color in (
        (ours, "wafers", style.BLUE),
        (theirs, f"{report.gpus} H100", style.VERMILION),
    ):
        if points:
            axes.plot(*zip(*points, strict=True), color=color, **_DOTS)
            fastest = max(points)
            labels.append(style.EndLabel(fastest[1], name, color))
    for point, (speed, rate) in zip(report.points, ours, strict=True):
        if point in (report.points[0], report.points[-1]):
            axes.annotate(
                point.load,
                (speed, rate),
                (0, 8),
                textcoords="offset points",
                ha="center",
                color=style.BLUE,
                fontsize=9,
            )
    axes.set_xlabel("tokens/s of a user, median")
    logarithmic(axes)
    return labels


def _draw_firsts(axes: Axes, report: LoadReport) -> list[style.EndLabel]:
    """Draw percentiles of the time to the first token over the loads."""
    axes.set_title("Time to the first token, s", color=style.FAINT_INK)
    _, _, noun = report.points[-1].load.partition(" ")
    names = [point.load.split()[0] for point in report.points]
    places = range(len(names))
    labels = []
    for percent, color in ((50, style.BLUE), (95, style.SKY), (99, style.ORANGE)):
        times = [getattr(point, f"first_token_p{percent}_s") for point in report.points]
        axes.plot(places, times, color=color, **_DOTS)
        labels.append(style.EndLabel(times[-1], f"p{percent}", color))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(places, names, fontsize=8)
    axes.set_xlabel(noun or "load")
    return labels


def _draw_batches(axes: Axes, report: LoadReport) -> list[style.EndLabel]:
    """Draw tokens/s of a batch whose weights stay, and of one to which they stream."""
    service, layout = report.service, report.service.layout
    context = report.lengths.prompt + report.lengths.output
    streaming = WeightStreaming(layout.decoder, context, service.spec.system, layout.num_wafers)
    axes.set_title("Tokens/s of a batch after its prompts", color=style.FAINT_INK)
    stays = [resident_tokens_per_s(service, context, batch) for batch in _BATCHES]
    streams = [streaming.tokens_per_s(batch) for batch in _BATCHES]
    for rates, color in ((stays, style.BLUE), (streams, style.ORANGE)):
        axes.plot(_BATCHES, rates, color=color)
    if (batch := report.crossover) is not None:
        rate = streaming.tokens_per_s(batch)
        axes.plot([batch], [rate], color=style.ORANGE, **_DOTS)
        axes.annotate(
            f"{batch:,}: {format_rate(rate)} tokens/s",
            (batch, rate),
            (-6, 8),
            textcoords="offset points",
            ha="right",
        )
    axes.set_xlabel(f"sequences of {context:,} tokens")
    logarithmic(axes)
    return _batch_labels(stays, streams)


def _batch_labels(stays: Sequence[float], streams: Sequence[float]) -> list[style.EndLabel]:
    labels = [style.EndLabel(stays[-1], "layers stay", style.BLUE)]
    if streams[-1]:
        labels.append(style.EndLabel(streams[-1], "weights stream", style.ORANGE))
    return labels


def logarithmic(axes: Axes) -> None:
    """Give axes scales of powers of ten."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_short(value)))
        axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
