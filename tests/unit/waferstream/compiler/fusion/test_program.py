"""The fused kernels of a program: built once, never half, and eager ones where that fails."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
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


WORKER = """#!/bin/sh
sleep 600 &
echo $! > "{pid}.partial"
mv "{pid}.partial" "{pid}"
echo "$TMPDIR" > "{pid}.folder"
wait
"""


@pytest.mark.timeout(120)
def test_closing_ends_the_compilers_and_removes_their_files(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, worker = tmp_path / "pid", tmp_path / "worker"
    worker.write_text(WORKER.format(pid=pid))
    worker.chmod(0o755)
    monkeypatch.setattr(module, "compiler", lambda: "compiler")
    monkeypatch.setattr(sys, "executable", str(worker))
    fusion = Fusion(request_of(compiled, tmp_path / "cache"))
    folder = tmp_path / "pid.folder"
    while not (folder.exists() and folder.read_text()):
        time.sleep(0.01)
    fusion.close()
    while is_running(int(pid.read_text())):
        time.sleep(0.01)
    assert not Path(folder.read_text().strip()).exists()


def test_cache_that_takes_no_files_gives_way_to_a_folder_of_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    own = tmp_path / "own"
    assert module._writable(tmp_path / "cache", str(own)) == tmp_path / "cache"
    assert not [*(tmp_path / "cache").iterdir()]
    assert not caplog.records
    assert module._writable(tmp_path / "file" / "cache", str(own)) == own
    assert len(caplog.records) == 1


def test_settings_of_inductor_do_not_reach_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CPP_ENABLE_FLOATING_POINT_CONTRACT_FLAG", "fast")
    found = module._environment("folder")
    assert {name for name in found if name.startswith("TORCHINDUCTOR_")} == {
        "TORCHINDUCTOR_CACHE_DIR"
    }
    assert found["TMPDIR"] == "folder"


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


COMPILER = """#!/bin/sh
test "$1" = --version && echo slow 1.0 && exit
echo $$ > "$COMPILERS/$$"
exec sleep 600
"""
PARENT = """
import os, pickle, signal, sys, time
from waferstream.compiler.fusion.program import Fusion
request, compilers = pickle.load(sys.stdin.buffer)
fusion = Fusion(request)
while not any(compilers.iterdir()):
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_neither_compilers_nor_their_files_outlive_a_killed_run(
    compiled: Compiled, tmp_path: Path
) -> None:
    compilers, folder, slow = (tmp_path / name for name in ("pids", "tmp", "slow"))
    compilers.mkdir()
    folder.mkdir()
    slow.write_text(COMPILER)
    slow.chmod(0o755)
    own = {"CXX": str(slow), "COMPILERS": str(compilers), "TMPDIR": str(folder)}
    subprocess.run(
        [sys.executable, "-c", PARENT],
        input=pickle.dumps((request_of(compiled, tmp_path), compilers)),
        env={**os.environ, **own},
        check=False,
    )
    pids = [int(file.name) for file in compilers.iterdir()]
    assert pids
    while any(folder.iterdir()) or any(is_running(pid) for pid in pids):
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Return whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
