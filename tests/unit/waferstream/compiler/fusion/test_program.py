"""The fused kernels of a program: built once, never half, and eager ones where that fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from tests.support.programs.kernels import run_kernels
from tests.support.programs.plain_steps import backward_step, mean_square
from tests.support.roles.local_machine import FP32
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.fusion import program as module
from waferstream.compiler.fusion.program import Fusion, Request

MODEL = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    step = backward_step(MODEL, mean_square)
    request = CompileRequest(FP32, 4, 2, "test")
    return compile_step(step, MODEL, [("x", torch.zeros(4, 8))], request)[0]


def request_of(compiled: Compiled, root: Path) -> Request:
    return Request(compiled.program, ((compiled.program.segments, compiled.kernels),), root, 2)


def test_without_compiler_kernels_are_eager(
    compiled: Compiled,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "compiler", lambda: None)
    assert Fusion(request_of(compiled, tmp_path)).finish() == []
    assert len(caplog.records) == 1


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_kernels_are_built_once_and_compute_what_eager_ones_do(
    compiled: Compiled, tmp_path: Path
) -> None:
    request = request_of(compiled, tmp_path)
    (entries,) = Fusion(request).finish()
    assert any(entry.fused for entry in entries)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert Fusion(request).finish() == [entries]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    batch = {"x": torch.randn(4, 8)}
    eager = run_kernels(compiled, MODEL, batch)
    fused = run_kernels(compiled, MODEL, batch, fused=[entry.fused for entry in entries])
    torch.testing.assert_close(fused, eager)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_killed_compilers_leave_a_cache_that_serves(compiled: Compiled, tmp_path: Path) -> None:
    request = request_of(compiled, tmp_path)
    fusion = Fusion(request)
    begin_s = time.monotonic()
    while not any(tmp_path.glob("fused_*.json")) and time.monotonic() - begin_s < 300:
        time.sleep(0.01)
    fusion.close()
    whole = {path: path.read_bytes() for path in tmp_path.glob("fused_*.json")}
    (entries,) = Fusion(request).finish()
    assert any(entry.fused for entry in entries)
    assert {path: path.read_bytes() for path in whole} == whole
