"""Queues of a GPU: which one a node takes, and settings that do not outlast the kernels."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from csnode.devices import cuda
from csnode.devices.cuda import queues_of_gpu, reproducible
from tests.support.errors import raises
from waferstream.core.errors import ClusterJobInitError


def test_nodes_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a GPU in its process says so, whatever the driver has seen."""
    taken: list[int] = []
    monkeypatch.setattr(cuda, "CudaQueues", taken.append)
    monkeypatch.setattr(cuda, "num_gpus", lambda: 2)
    monkeypatch.setattr(cuda, "kind_of_gpu", lambda _: "one kind")
    for node in range(5):
        queues_of_gpu(node)
    assert taken == [0, 1, 0, 1, 0]
    monkeypatch.setattr(cuda, "num_gpus", lambda: 0)
    with raises(ClusterJobInitError, "no-gpu-in-process"):
        queues_of_gpu(0)


def test_gpus_of_several_kinds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights would depend on which system has which."""
    monkeypatch.setattr(cuda, "num_gpus", lambda: 2)
    monkeypatch.setattr(cuda, "kind_of_gpu", "kind {}".format)
    with raises(ClusterJobInitError, "gpus-differ") as caught:
        queues_of_gpu(1)
    assert caught.value.value == "kind 0, kind 1"


def test_gpus_are_counted_without_starting_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are forked later may still use it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("it starts the driver"))
    assert cuda.num_gpus() >= 0


def settings() -> tuple[object, ...]:
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    return (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.deterministic,
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
        *(kind.fp32_precision == "tf32" for kind in (matmul, cudnn.conv, cudnn.rnn)),
    )


@pytest.mark.parametrize("precision", ["none", "tf32"])
def test_kernels_are_reproducible_and_leave_no_setting(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the process uses for its own, also TF32 by torch's newer names, which clash."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for kind in (torch.backends, torch.backends.cuda.matmul):
        monkeypatch.setattr(kind, "fp32_precision", precision)
    before = settings()
    with reproducible():
        inside = settings()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert inside == (True, True, *[False] * 5)
    assert settings() == before
