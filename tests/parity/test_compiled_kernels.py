"""Compiled kernels: one answer for every cluster, and that of a plain loop over the same segments.

Nightly, since a C++ compiler takes seconds for each kernel.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.reference_loop import train, weights_sha256
from tests.support.runs.tiny_training import (
    LOADER,
    Shape,
    init_config,
    shared_compiles,
    train_on_cluster,
)
from waferstream.workload.data import build_source

COMPILED = {"kernels": "compiled"}
STEPS = 2


@pytest.fixture(scope="module")
def reference() -> str:
    source = build_source(LOADER, "test")
    batches = (source.batch(step) for step in range(STEPS))
    return weights_sha256(
        train(init_config(), batches, source.batch_size, "compiled", shared_compiles())
    )


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(engine=COMPILED),
        Shape(2, servers=2, engine=COMPILED),
        Shape(4, fan_out=2, engine=COMPILED),
        Shape(8, kind="ray", engine=COMPILED),
        Shape(2, engine=COMPILED, restarts=1, faults=("csx-1@2:exception",)),
    ],
    ids=["one", "two", "tree", "ray", "fault"],
)
def test_compiled_weights_equal_the_loop(shape: Shape, reference: str, tmp_path: Path) -> None:
    shape = replace(shape, folder=tmp_path if shape.faults else None)
    assert train_on_cluster(init_config(), shape, STEPS) == reference
