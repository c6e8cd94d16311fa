"""The benchmark of streaming to a GPU, as far as it goes without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import cstorch
from appliance.spec import RuntimeSpec
from benchmarks.streaming import gpu
from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.workload import Workload
from cstorch import backends
from waferstream.core.units import MIB

TINY = Workload(64, 1, 64, 8, batch_size=4, precision="bf16", cores=1, micro_batch=2)


def test_host_without_a_gpu_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so, and writes no result."""
    monkeypatch.setattr("appliance.placement.placer.num_gpus", lambda: 0)
    assert gpu.main(["--json", str(tmp_path / "gpu.json")]) == 1
    assert "too-few-gpus" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("same_kernels", [True, False])
def test_model_in_memory_trains_on_its_device(same_kernels: bool) -> None:
    """Here the processor; a step has two micro-batches."""
    with gpu.open_on_device(TINY, "cpu", same_kernels=same_kernels) as run:
        run(1)


@pytest.mark.parametrize("gpu_bytes", [128 * MIB, 512 * MIB])
def test_weights_of_the_deeper_model_exceed_the_limit(gpu_bytes: int) -> None:
    """By less than a layer."""
    workload = gpu.beyond(gpu_bytes)
    weight_bytes = 2 * workload.num_parameters()
    shallower = replace(workload, layers=workload.layers - 1)
    assert 2 * shallower.num_parameters() <= gpu_bytes < weight_bytes


def test_cluster_takes_the_stated_micro_batch() -> None:
    """Of the workload, not that of ``auto``."""
    threads = torch.get_num_threads()
    try:
        with open_cluster(TINY, 1, runtime=RuntimeSpec(kind="local")):
            assert cstorch.backends.csx.performance.micro_batch_size == 2
    finally:
        backends.reset()
        torch.set_num_threads(threads)
