"""Layers of a step that are alike, and their no-stall condition as rows of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from waferstream.core.units import format_bytes, format_ps
from waferstream.machine.stalls import StreamCheck

NUMBER = re.compile(r"\d+")
"""What layers that are alike may differ in."""
_MOST_RANGES = 3  # a path with more ranges is too long

LAYER_HEADER = (
    "layers", "phase", "count", "density", "weights", "gradients", "stream time", "compute time",
    "bound by", "stalls", "remedy",
)  # fmt: skip
"""Names of the columns of ``layer_row``."""


@dataclass(frozen=True)
class LayerGroup:
    """The no-stall condition of ``count`` layers that differ in their numbers only."""

    layers: str
    """Path with ranges, ``decoder.0-11``; with * where there are many ranges."""
    count: int
    check: StreamCheck
    """Bytes and times of one of the layers."""
    stream_ps: int
    remedy: str
    """The smallest sufficient change of each kind; empty where the condition holds."""


def group_layers(
    checks: Sequence[StreamCheck], micro_batch_size: int, largest: int
) -> tuple[LayerGroup, ...]:
    """Group equal checks of layers that differ in their numbers only.

    Args:
        checks: One check per segment, in order of execution.
        micro_batch_size: Samples per micro-batch.
        largest: Samples of the largest micro-batch that fits a wafer.

    Returns:
        Groups in the order of their first layers.
    """
    paths: dict[StreamCheck, list[str]] = {}
    for check in checks:
        key = replace(check, layer=NUMBER.sub("*", check.layer))
        paths.setdefault(key, []).append(check.layer)
    return tuple(
        LayerGroup(
            layers=joint_path(layers),
            count=len(layers),
            check=check,
            stream_ps=check.stream_ps,
            remedy=check.remedy(micro_batch_size, largest),
        )
        for check, layers in paths.items()
    )


def layer_row(group: LayerGroup) -> tuple[str, ...]:
    """Return one group as a row of a table."""
    check = group.check
    return (
        group.layers,
        check.phase,
        f"{group.count}",
        f"{check.density:.3g}",
        format_bytes(check.weight_bytes),
        format_bytes(check.gradient_bytes),
        format_ps(group.stream_ps),
        format_ps(check.compute_ps),
        check.bound,
        "no" if check.holds else "yes",
        group.remedy,
    )


def joint_path(layers: Sequence[str]) -> str:
    """Return one path for all: ``decoder.0-11``, or ``decoder.*`` for many ranges."""
    if len(layers) == 1:
        return layers[0]
    numbers = [NUMBER.findall(layer) for layer in layers]
    ranges = _ranges({int(number) for (number,) in numbers}) if len(numbers[0]) == 1 else []
    return NUMBER.sub(",".join(ranges) if 0 < len(ranges) <= _MOST_RANGES else "*", layers[0])


def _ranges(numbers: set[int]) -> list[str]:
    ends: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ends and number == ends[-1][1] + 1:
            ends[-1] = (ends[-1][0], number)
        else:
            ends.append((number, number))
    return [f"{first}-{last}" if first < last else f"{first}" for first, last in ends]
