"""Layers that run on a part of a micro-batch at a time on the emulated wafer: the same weights."""

from __future__ import annotations

import pytest

from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.machine.hardware import CS2
from waferstream.machine.sram import code_bytes


def test_weights_do_not_depend_on_blocks(caplog: pytest.LogCaptureFixture) -> None:
    """For any number of systems."""
    tight = {"system": {"sram_bytes": code_bytes(CS2) + 9_000, "io_bandwidth_bytes_per_s": 10**6}}
    with caplog.at_level("INFO", "waferstream"):
        found = {train_on_cluster(init_config(), Shape(n), machine=tight) for n in (1, 3)}
    assert "layers run on a part of a micro-batch" in caplog.text
    assert found == {train_on_cluster(init_config(), Shape(1))}
