"""Layers that differ in number alone are told once, and it is plain which they are."""

import pytest

from timing.stalls import StreamCheck
from waferstream.simulation.layers import layer_checks


def check(layer: str, compute_ps: int = 10**9) -> StreamCheck:
    """A forward segment that does not stall."""
    return StreamCheck(layer, "forward", 1000, 0, compute_ps, 10**9)


@pytest.mark.parametrize(
    ("layers", "path"),
    [
        (["head"], "head"),
        (["tower.1.block.7"], "tower.1.block.7"),
        (["decoder.2", "decoder.1", "decoder.0"], "decoder.0-2"),
        (
            ["decoder.0", "decoder.1", "decoder.5", "decoder.10", "decoder.11"],
            "decoder.0-1,5,10-11",
        ),
        ([f"decoder.{number}" for number in range(0, 20, 2)], "decoder.*"),
        (["tower.0.block.0", "tower.0.block.1"], "tower.*.block.*"),
    ],
)
def test_equal_layers_are_one_row(layers: list[str], path: str) -> None:
    """Numbers as ranges, in whatever order they run; a star where that would be long."""
    (row,) = layer_checks([check(layer) for layer in layers], 1, 8)
    assert (row.layer, row.count) == (path, len(layers))


def test_layers_that_differ_are_told_apart() -> None:
    """The last one takes a picosecond longer: the numbers say which it is."""
    checks = [check("encoder.0"), check("encoder.1"), check("encoder.2", 10**9 + 1)]
    rows = layer_checks(checks, 1, 8)
    assert [(row.layer, row.count) for row in rows] == [("encoder.0-1", 2), ("encoder.2", 1)]
