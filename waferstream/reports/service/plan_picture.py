"""Picture of a plan: the regions of each wafer with the way of a token, and its time by cause.

matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from waferstream.core.units import PS_PER_S, PS_PER_US, counted, format_ps, format_rate
from waferstream.machine.regions.layout import Layout, Stage
from waferstream.reports import style
from waferstream.reports.service.plan import ServicePlan, name_of

MOST_WAFERS = 6
"""The most wafers that are drawn; the others look like them."""

CAUSE_COLORS = {
    "compute": style.BLUE,
    "fabric": style.SKY,
    "waiting": style.VERMILION,
    "hop": style.ORANGE,
    "cycle": style.GREEN,
}
_PART_COLORS = {"embedding": style.ORANGE, "layers": style.BLUE, "head": style.GREEN}
_SHADES = 0.55, 0.85  # of neighbouring stages
_WAFER_INCHES = 2.3


def plan_picture(path: Path, plan: ServicePlan) -> None:
    """Draw the wafers of a plan and the time of a token."""
    layout = plan.service.layout
    drawn = min(layout.num_wafers, MOST_WAFERS)
    left_out = layout.num_wafers - drawn
    title = f"{plan.name} on {layout.num_wafers} {plan.service.spec.system.name}"
    if left_out:
        title += f", of which {left_out} like the others are not drawn"
    with style.picture(path, title, max(6.5, drawn * _WAFER_INCHES), 6.0) as figure:
        parts = figure.subfigures(2, 1, squeeze=False, height_ratios=(3.5, 1.7))
        above, below = parts[:, 0]
        all_axes = above.subplots(1, drawn, squeeze=False)[0]
        shown = [*range(drawn - 1), layout.num_wafers - 1] if left_out else list(range(drawn))
        for axes, wafer in zip(all_axes, shown, strict=True):
            _draw_wafer(axes, layout, wafer)
        _draw_token(below.subplots(), plan)


def _draw_wafer(axes: Axes, layout: Layout, wafer: int) -> None:
    """Draw the regions of a wafer, and the way of a token through them."""
    fabric, side = layout.region.fabric, layout.region.side
    axes.set_title(f"Wafer {wafer + 1}", color=style.FAINT_INK)
    axes.add_patch(Rectangle((0, 0), fabric.columns, fabric.rows, color=style.LIGHT, lw=0))
    way = []
    for index, stage in enumerate(layout.stages):
        places = [place for place in stage.places if place.wafer == wafer]
        for place in places:
            _draw_region(axes, (place.column, place.row), side, stage, _SHADES[index % 2])
            way.append((place.column + side / 2, place.row + side / 2))
        if places:
            _label(axes, stage, side, len(layout.region.snake))
    axes.plot(*zip(*way, strict=True), color="white", linewidth=1.0, alpha=0.6, zorder=2)
    axes.set_xlim(0, fabric.columns)
    axes.set_ylim(fabric.rows, 0)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _draw_region(
    axes: Axes, corner: tuple[int, int], side: int, stage: Stage, shade: float
) -> None:
    color = _PART_COLORS[stage.part]
    axes.add_patch(
        Rectangle(corner, side, side, facecolor=color, alpha=shade, edgecolor="white", lw=0.8)
    )


def _label(axes: Axes, stage: Stage, side: int, regions: int) -> None:
    """Write the layers of a stage into its first region, if there is room."""
    text = name_of(stage)
    place = stage.places[0]
    size = min(9.0, 52.0 / regions**0.5)
    if size >= 4:
        axes.annotate(
            "emb" if text == "embedding" and regions > 12 else text,
            (place.column + side / 2, place.row + 0.3 * side),  # above the way of a token
            ha="center",
            va="center",
            fontsize=size,
            color="white",
            fontweight="bold",
            zorder=3,
        )


def _draw_token(axes: Axes, plan: ServicePlan) -> None:
    """Draw the time of a token alone, and with a draft, by cause."""
    service, context = plan.service, plan.context
    bars = [("a token", service.pipeline.token(context).by_cause)]
    if guesses := service.guesses(context):
        parts = round(1000 * service.tokens_of_round(context))
        mean = service.round(context).scaled(1000, parts).by_cause
        bars.append((f"with {counted(guesses, 'guess', 'guesses')} of a draft", mean))
    for row, (_, by_cause) in enumerate(bars):
        left = 0.0
        for cause, ps in by_cause.items():
            axes.barh(row, ps / PS_PER_US, 0.6, left, color=CAUSE_COLORS[cause])
            left += ps / PS_PER_US
        total = sum(by_cause.values())
        rate = format_rate(PS_PER_S / total)
        axes.annotate(
            f"{format_ps(total)}, {rate} tokens/s",
            (left, row),
            (5, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * max(sum(by.values()) for _, by in bars) / PS_PER_US)
    axes.set_xlabel(f"us at a context of {context:,}")
    axes.grid(visible=False)
    for cause, color in CAUSE_COLORS.items():
        axes.bar(0, 0, color=color, label=cause)
    axes.legend(
        loc="lower right", ncols=len(CAUSE_COLORS), frameon=False, bbox_to_anchor=(1.0, 1.0)
    )
