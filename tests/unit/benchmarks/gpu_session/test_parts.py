"""Parts of a session of a GPU, on the processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from appliance.spec import RuntimeSpec
from benchmarks.gpu_session.loops import accept_torch, open_in_memory
from benchmarks.gpu_session.measures import (
    Shares,
    Span,
    model_flops,
    published_peak,
    shares_of,
    spans_of,
)
from benchmarks.gpu_session.parts import measure_device
from benchmarks.gpu_session.settings import STATE_BYTES, PatternWorkload, Settings, beyond
from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.workload import Workload
from cstorch import backends
from tests.support.errors import raises
from waferstream.core import tested_torch
from waferstream.core.errors import ConfigError
from waferstream.core.units import MIB
from waferstream.host.files import write_json

TINY = Workload(64, 1, 64, 8, batch_size=4, precision="bf16", cores=1, micro_batch=2)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("is_mixed", [True, False])
@pytest.mark.parametrize("is_compiled", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_model_in_memory_trains_on_its_device(is_compiled: bool, is_mixed: bool) -> None:
    """Here the processor; a step has two micro-batches."""
    with open_in_memory(TINY, "cpu", is_compiled=is_compiled, is_mixed=is_mixed) as run:
        run(1)


@pytest.mark.parametrize("limit", [600 * MIB, 800 * MIB])
def test_state_of_the_model_beyond_exceeds_the_limit(limit: int) -> None:
    """By less than a layer."""
    workload = beyond(replace(TINY, hidden=1024), limit)
    shallower = replace(workload, layers=workload.layers - 1)
    assert STATE_BYTES * shallower.num_parameters() <= limit
    assert STATE_BYTES * workload.num_parameters() > limit


def test_pattern_has_the_spread_of_the_weights_that_it_stands_for() -> None:
    """Large tensors repeat; small ones are drawn as ever."""
    workload = PatternWorkload(512, 1, 4096, 8, 4, "bf16", 1, 2)
    found = dict(workload.model().named_parameters())
    table = next(p for p in found.values() if p.shape == (4096, 512)).detach().view(-1)
    assert torch.equal(table[: 1 << 20], table[1 << 20 :])
    assert 0.01 < float(table.std()) < 0.1


def test_device_is_measured() -> None:
    found: dict[str, Any] = {}
    measure_device(Settings("cpu", small=True), found.update)
    assert found["product_flops_per_s"] > 0
    assert set(found["copy_bytes_per_s"]) == {"host", "to_device", "to_device_pageable", "to_host"}


def test_every_moment_of_a_trace_is_attributed() -> None:
    """Kernel 0 to 4; copies 3 to 6 and 5 to 7, of which 3 are exposed; nothing until 9."""
    spans = [Span("kernel", 0, 4), Span("copy", 3, 6), Span("copy", 5, 7), Span("kernel", 9, 10)]
    assert shares_of(spans) == Shares(0.5, 0.3, 0.1, 0.2, 1e-5)


def test_copies_within_the_device_are_kernels(tmp_path: Path) -> None:
    """Only those across the bus can be hidden; ops of the processor are none of the device."""
    names = {
        "kernel": ["sgemm"],
        "gpu_memcpy": ["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)"],
        "cpu_op": ["aten::mm"],
    }
    events = [
        {"ph": "X", "cat": category, "name": name, "ts": 0, "dur": 1}
        for category, of_category in names.items()
        for name in of_category
    ]
    write_json(tmp_path / "trace.json", {"traceEvents": events})
    found = spans_of(tmp_path / "trace.json", "cuda")
    assert [span.kind for span in found] == ["kernel", "copy", "kernel"]


def test_utilisation_counts_products_of_weights_and_attention() -> None:
    """Six per weight and token, and twelve per layer, hidden element and pair of tokens."""
    expected = 32 * (6 * TINY.num_parameters() + 12 * 64 * 8)
    assert model_flops(TINY) == expected
    assert published_peak("NVIDIA H100 80GB HBM3") == 989e12
    assert published_peak("another") is None


def test_session_takes_the_torch_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever release a host with a GPU has."""
    monkeypatch.setattr(tested_torch, "TORCH", "2.13.0")
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    with raises(ConfigError, "torch-not-tested"):
        tested_torch.check_torch(torch.__version__)
    accept_torch()
    tested_torch.check_torch(torch.__version__)


def test_cluster_takes_the_stated_micro_batch() -> None:
    """Of the workload, not that of ``auto``."""
    threads = torch.get_num_threads()
    try:
        with open_cluster(TINY, 1, runtime=RuntimeSpec(kind="local")):
            assert cstorch.backends.csx.performance.micro_batch_size == 2
    finally:
        backends.reset()
        torch.set_num_threads(threads)
