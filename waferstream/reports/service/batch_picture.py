"""Picture of batches: layers that stay on the wafers, against weights that stream to them.

matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

from pathlib import Path

from waferstream.core.units import format_rate
from waferstream.machine.regions.batch_time import BatchTime
from waferstream.reports import style
from waferstream.reports.service.load_picture import logarithmic

_REQUESTS = [round(10 ** (exponent / 4)) for exponent in range(21)]


def batch_picture(path: Path, name: str, time: BatchTime, requests: int) -> None:
    """Draw tokens/s of batches by both ways over their requests, with a line at one batch."""
    layout, system = time.service.layout, time.service.spec.system
    with style.picture(path, f"{name} on {layout.num_wafers} {system.name}", 6.4, 4.4) as figure:
        axes = figure.subplots()
        axes.set_title("Tokens/s of a batch, its prompts included", color=style.FAINT_INK)
        labels = []
        for label, seconds_of, color in (
            ("layers stay", time.resident_s, style.BLUE),
            ("weights stream", time.streamed_s, style.ORANGE),
        ):
            rates = [each * time.answer / seconds_of(each) for each in _REQUESTS]
            axes.plot(_REQUESTS, rates, color=color)
            labels.append(style.EndLabel(rates[-1], label, color))
        axes.axvline(requests, color=style.LIGHT, zorder=0)
        if (fewest := time.crossover) is not None:
            rate = fewest * time.answer / time.streamed_s(fewest)
            told = f"{fewest:,}: {format_rate(rate)} tokens/s"
            axes.plot([fewest], [rate], color=style.ORANGE, marker="o", markeredgecolor="white")
            axes.annotate(told, (fewest, rate), (-6, 8), textcoords="offset points", ha="right")
        axes.set_xlabel(f"requests of {time.prompt:,} tokens, answered with {time.answer:,}")
        logarithmic(axes)
        style.lay_out(figure)
        style.label_ends(axes, labels)
