"""The no-stall condition of a step's layers, those that differ in number alone told once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from timing.stalls import StreamCheck
from waferstream.simulation.results import LayerCheck

_NUMBER = re.compile(r"\d+")
_MOST_RANGES = 3  # a path with more is long


def layer_checks(
    checks: Sequence[StreamCheck], micro_batch_size: int, largest: int
) -> tuple[LayerCheck, ...]:
    """Checks in order of execution, equal ones as one at the place of the first.

    ``largest`` is the most samples that a wafer has room for.
    """
    layers: dict[StreamCheck, list[str]] = {}
    for check in checks:
        alike = replace(check, layer=_NUMBER.sub("*", check.layer))
        layers.setdefault(alike, []).append(check.layer)
    return tuple(
        LayerCheck(
            layer=_path(names),
            phase=check.phase,
            count=len(names),
            weight_bytes=check.weight_bytes,
            gradient_bytes=check.gradient_bytes,
            compute_ps=check.compute_ps,
            stream_ps=check.stream_ps,
            holds=check.holds,
            cure=check.cure(micro_batch_size, largest),
        )
        for check, names in layers.items()
    )


def _path(layers: Sequence[str]) -> str:
    """One path for all: ``decoder.0-11``, or ``decoder.*`` where ranges would be long."""
    if len(layers) == 1:
        return layers[0]
    numbers = [_NUMBER.findall(layer) for layer in layers]
    ranges = _ranges({int(number) for (number,) in numbers}) if len(numbers[0]) == 1 else []
    return _NUMBER.sub(",".join(ranges) if 0 < len(ranges) <= _MOST_RANGES else "*", layers[0])


def _ranges(numbers: set[int]) -> list[str]:
    ends: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ends and number == ends[-1][1] + 1:
            ends[-1] = (ends[-1][0], number)
        else:
            ends.append((number, number))
    return [f"{first}-{last}" if first < last else f"{first}" for first, last in ends]
