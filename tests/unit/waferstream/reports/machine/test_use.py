"""Layers that are alike are grouped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from waferstream.machine.stalls import StreamCheck
from waferstream.reports.machine.use import LAYER_HEADER, group_layers, layer_row


def check(layer: str, compute_ps: int = 10**9) -> StreamCheck:
    """Return the check of a forward segment that does not stall."""
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
def test_group_layers_joins_equal_layers(layers: list[str], path: str) -> None:
    """Numbers become ranges, in any order of execution, or a star for many ranges."""
    (group,) = group_layers([check(layer) for layer in layers], 1, 8)
    assert (group.layers, group.count) == (path, len(layers))


def test_group_layers_separates_layers_that_differ() -> None:
    checks = [check("encoder.0"), check("encoder.1"), check("encoder.2", 10**9 + 1)]
    groups = group_layers(checks, 1, 8)
    found = [(group.layers, group.count) for group in groups]
    assert found == [("encoder.0-1", 2), ("encoder.2", 1)]


def test_layer_row_states_density_and_bound() -> None:
    """In the order of the header; what does not stall is bound by its computing."""
    sparse = replace(check("head"), density=0.125)
    slow = replace(sparse, compute_ps=1, sufficient_density=0.05)
    (first, second) = group_layers([sparse, slow], 1, 8)
    row = dict(zip(LAYER_HEADER, layer_row(first), strict=True))
    assert (row["density"], row["bound by"], row["stalls"], row["remedy"]) == (
        "0.125", "compute", "no", "",
    )  # fmt: skip
    row = dict(zip(LAYER_HEADER, layer_row(second), strict=True))
    assert (row["bound by"], row["stalls"]) == ("link", "yes")
    assert row["remedy"].endswith("or 95% of the weights zero")
