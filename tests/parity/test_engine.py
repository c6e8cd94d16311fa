"""Training on the array of PEs: one answer for every cluster, close to torch's."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from csnode.engine.binding import built
from csnode.engine.calls import KernelCall, calls_of
from csnode.engine.closed_forms import kernel_cycles, region_grid
from csnode.engine.fabric import FabricArray, Run
from csnode.engine.spec import KINDS, KernelName
from tests.support.errors import raises
from tests.support.runs.tiny_training import GPT, LLAMA, Shape, init_config, train_on_cluster
from waferstream.core.errors import (
    ApplianceResourceExhausted,
    ConfigError,
)
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment

WAFER: dict[str, Any] = {"default": "wafer", "rows": 4, "columns": 4}


ONE_LAYER = {"num_hidden_layers": 1}


def digest(engine: Any, num_csx: int = 1, **options: Any) -> str:
    init = init_config(GPT | ONE_LAYER)
    found: str = train_on_cluster(init, Shape(num_csx, engine=engine), steps=1, **options)
    return found


@pytest.fixture(scope="module")
def alone() -> str:
    return digest(WAFER)


@pytest.fixture(scope="module")
def on_torch() -> str:
    return digest("torch")


@pytest.mark.parametrize("num_csx", [2, 4])
def test_weights_do_not_depend_on_the_number_of_systems(alone: str, num_csx: int) -> None:
    assert digest(WAFER, num_csx) == alone


def test_the_order_of_sums_is_not_that_of_torch(alone: str, on_torch: str) -> None:
    assert on_torch != alone


def test_dead_pes_leave_the_weights_as_they_are(alone: str) -> None:
    machine = {"system": {"name": "CS-2", "defects": {"pe_yield": 0.99, "seed": 5}}}
    assert digest(WAFER, machine=machine) == alone


def test_all_kernels_left_to_torch_give_the_weights_of_torch(on_torch: str) -> None:
    engine = {"default": "wafer", "kernels": dict.fromkeys(sorted(KINDS), "torch")}
    assert digest(engine) == on_torch


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_simulated_fabric_gives_the_same_weights(
    alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kernel of the layer comes from the simulator, forward and backward.

    The kernels are those that its ops state, and their cycles those of the closed forms.
    """
    runs: list[Run] = []
    segments: list[Segment] = []

    def noted(kernel: KernelSource, segment: Segment, *setting: Any) -> Any:
        segments.append(segment)
        return built(kernel, segment, *setting)

    monkeypatch.setattr("csnode.executor.built", noted)
    monkeypatch.setattr(
        "csnode.engine.binding.FabricArray", partial(FabricArray, on_run=runs.append)
    )
    assert digest(WAFER | {"layers": {"decoder.0": "wafer-cycles"}}) == alone
    calls = Counter[tuple[KernelName, tuple[int, ...]]]()
    for work in (op for each in segments if each.layer == "decoder.0" for op in each.work):
        for call in calls_of(work, "float32"):
            calls[call.kernel, call.shape] += call.times
    ran = Counter((run.kernel, run.shape) for run in runs)
    assert ran.keys() == calls.keys()
    assert len({ran[kernel] / calls[kernel] for kernel in calls}) == 1  # the micro-batches
    grid = region_grid(WAFER["rows"], WAFER["columns"])
    for run in runs:
        closed_form = kernel_cycles(grid, KernelCall(run.kernel, run.shape, run.dtype))
        assert closed_form.total_cycles == pytest.approx(run.cycles, rel=0.05)


def test_llama_trains_on_the_array() -> None:
    """Without biases, with RMS norm."""
    init = init_config(LLAMA | ONE_LAYER)
    ours, torchs = (
        train_on_cluster(init, Shape(engine=engine), steps=1) for engine in (WAFER, "torch")
    )
    assert ours != torchs


def test_region_must_lie_on_the_wafer() -> None:
    with raises(ApplianceResourceExhausted, "region-outside-wafer"):
        digest(WAFER | {"columns": 4000})


def test_unknown_engine_is_refused() -> None:
    with raises(ConfigError, "not-one-of"):
        digest("gpu")
