"""The causes of timing.attribution as they look in pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from timing.attribution import Attribution
from waferstream.reports import style

CAUSE_COLORS = {
    "compute": style.BLUE,
    "overhead": style.SKY,
    "straggler": style.VERMILION,
    "weights": style.ORANGE,
    "input": style.GREEN,
    "reduce": style.PURPLE,
    "idle": style.LIGHT,
}
"""One colour for each cause."""

_VISIBLE = 0.005  # a smaller share is too thin to see


def cause_labels(shares: Sequence[Mapping[str, float]]) -> list[style.EndLabel]:
    """Beside the last of several stacks of shares, the causes that can be seen in any of them."""
    labels, bottom = [], 0.0
    for cause in (field.name for field in fields(Attribution)):
        share = shares[-1][cause]
        if any(each[cause] >= _VISIBLE for each in shares):
            color = style.FAINT_INK if cause == "idle" else CAUSE_COLORS[cause]
            labels.append(style.EndLabel(bottom + share / 2, cause, color))
        bottom += share
    return labels
