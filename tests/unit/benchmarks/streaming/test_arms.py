"""Arms by name; names and workloads that cannot run are refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

from benchmarks.streaming import torch_loops
from benchmarks.streaming.arms import openers
from benchmarks.streaming.workload import Layout, Workload
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

WORKLOAD = Workload(64, 1, 64, 8, batch_size=8, precision="fp32", cores=2)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gpu", "unknown-arm"),
        ("csx0", "unknown-arm"),
        ("csx1c1m2", "unknown-arm"),
        ("csx9", "more-systems-than-micro-batches"),
        ("csx5m2", "more-systems-than-micro-batches"),
        ("ddp3", "ranks-not-divisible"),
        ("zero2mixed", "unknown-arm"),
    ],
)
def test_openers_refuse_arms_that_cannot_run(tmp_path: Path, name: str, code: str) -> None:
    """8 micro-batches, 2 cores."""
    with raises(ConfigError, code):
        openers(name, WORKLOAD, tmp_path)


@pytest.mark.parametrize(
    ("name", "num_csx", "size", "cores"),
    [("csx8", 8, 1, 2), ("csx4m2", 4, 2, 2), ("csx1c1", 1, 1, 1), ("csx2m4c1", 2, 4, 1)],
)
def test_systems_take_a_stated_micro_batch_and_cores(
    tmp_path: Path, name: str, num_csx: int, size: int, cores: int
) -> None:
    """Without a statement the cluster takes ``auto`` and all cores."""
    (opener,) = openers(name, WORKLOAD, tmp_path)
    assert isinstance(opener, partial)
    workload, count = opener.args
    assert (count, workload.micro_batch_size, workload.cores) == (num_csx, size, cores)


@pytest.mark.parametrize("layout", WORKLOAD.layouts, ids=str)
def test_layouts_in_memory_give_the_same_gradients(layout: Layout) -> None:
    """Whatever the micro-batches and lanes, a loop learns the same but for rounding."""
    threads = torch.get_num_threads()
    weights = []
    for each in (Layout(8), layout):
        model = WORKLOAD.model()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Workload, "model", lambda _, model=model: model)
            with torch_loops.open_memory(WORKLOAD, each) as run:
                run(1)
        weights.append([parameter.detach() for parameter in model.parameters()])
    torch.set_num_threads(threads)
    torch.testing.assert_close(*weights, rtol=1e-3, atol=2e-5)


def test_mixed_loop_keeps_its_weights_in_fp32() -> None:
    """It learns what the loop in fp32 learns, but for rounding of kernels to bf16."""
    threads = torch.get_num_threads()
    weights = []
    for is_mixed in (False, True):
        model = WORKLOAD.model()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Workload, "model", lambda _, model=model: model)
            with torch_loops.open_memory(WORKLOAD, Layout(2, 2), is_mixed=is_mixed) as run:
                run(1)
        weights.append([parameter.detach() for parameter in model.parameters()])
    torch.set_num_threads(threads)
    assert all(weight.dtype == torch.float32 for weight in weights[1])
    torch.testing.assert_close(*weights, rtol=1e-2, atol=3e-4)
    assert not all(map(torch.equal, *weights))


def test_layouts_leave_no_lane_without_work() -> None:
    layouts = WORKLOAD.layouts
    assert Layout(8, 1) in layouts
    assert Layout(8, 2) not in layouts
    assert {layout.micro_batch_size for layout in layouts} == {1, 2, 4, 8}


def test_systems_compile_their_kernels_where_the_arm_says_so(tmp_path: Path) -> None:
    kernels = []
    for name in ("csx1", "csx2m2compiled"):
        (opener,) = openers(name, WORKLOAD, tmp_path)
        assert isinstance(opener, partial)
        kernels.append(opener.args[0].kernels)
    assert kernels == ["eager", "compiled"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_compile_what_they_train(tmp_path: Path, kind: str) -> None:
    compiled: list[torch.nn.Module] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "compile", lambda self, **_: compiled.append(self))
        trained_alone(f"{kind}1compiled", WORKLOAD, tmp_path)
    assert len(compiled) == 1


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_rank_trains_alone(tmp_path: Path, kind: str) -> None:
    """A group of one rank sets itself up and steps."""
    trained_alone(f"{kind}1", WORKLOAD, tmp_path)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_in_mixed_precision_keep_their_weights_in_fp32(tmp_path: Path, kind: str) -> None:
    """Others keep them in the dtype of the kernels; both learn alike."""
    half = replace(WORKLOAD, precision="bf16")
    (mixed_folder := tmp_path / "mixed").mkdir()
    mixed = trained_alone(f"{kind}1mixed", half, mixed_folder)
    plain = trained_alone(f"{kind}1", half, tmp_path)
    assert {weight.dtype for weight in mixed} == {torch.float32}
    assert {weight.dtype for weight in plain} == {torch.bfloat16}
    for one, other in zip(mixed, plain, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-2, atol=3e-3)


def trained_alone(name: str, workload: Workload, folder: Path) -> list[torch.Tensor]:
    """Train one step in this process; return the weights."""
    threads = torch.get_num_threads()
    model = workload.model()
    (opener,) = openers(name, workload, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workload, "model", lambda _: model)
        with opener() as run:
            run(1)
            weights = [
                (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach()
                for parameter in model.parameters()
            ]
    torch.set_num_threads(threads)
    return weights


def test_openers_of_ranks_share_a_meeting_point(tmp_path: Path) -> None:
    """Every rank of ddp2 gets its own number and the same meeting point."""
    ranks = []
    for opener in openers("ddp2", WORKLOAD, tmp_path):
        assert isinstance(opener, partial)
        ranks.append(opener.args[1:])
    assert ranks == [(0, 2, tmp_path / "meeting_point"), (1, 2, tmp_path / "meeting_point")]
