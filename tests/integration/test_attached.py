"""A server in a process of its own, and programs that end well, by Ctrl-C, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host.attached import server_process
from tests.support.runs.tiny_run import ROOT

PROGRAM = """
import sys
import torch
import cstorch
from own_rows import rows

net = torch.nn.Linear(4, 1)
config = cstorch.ClusterConfig(num_csx=2, mgmt_address=sys.argv[1])
backend = cstorch.backend("CSX", cluster_config=config)
cstorch.amp.enable_mixed_precision(False)
model = cstorch.compile(net, backend)
optimizer = cstorch.optim.SGD(model.parameters(), lr=0.01)


@cstorch.trace
def step(batch):
    loss = (model(batch["x"]) - batch["y"]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@cstorch.step_closure
def tell(loss):
    print(loss.item(), flush=True)


data = cstorch.utils.data.DataLoader(rows, int(sys.argv[2]))
loop = cstorch.utils.data.DataExecutor(data, num_steps=4, activation_steps=2)
try:
    for batch in loop:
        tell(step(batch))
finally:
    print("weights", net.weight.detach().isfinite().all().item(), "ray" in sys.modules, flush=True)
"""

ROWS = '''
import time
import torch


def rows(num_fast):
    """Return batches, of which the first ones come at once."""
    x = torch.ones(8, 4)
    for index in range(10):
        if index >= num_fast:
            time.sleep(100)
        yield {"x": x, "y": x.sum(dim=1, keepdim=True)}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_rows.py").write_text(ROWS)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("server"), "--lease_s", "2") as (_, address):
        yield address


def start(folder: Path, address: str, num_fast: int = 10) -> subprocess.Popen[str]:
    """Run the program, whose loader stops after so many batches."""
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), address, str(num_fast)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a program; return what it has printed."""
    try:
        return process.communicate(timeout=80)
    finally:
        process.kill()


@pytest.mark.nightly
def test_program_trains_without_ray(folder: Path, address: str) -> None:
    process = start(folder, address)
    output, errors = finish(process)
    assert process.returncode == 0, errors
    assert output.split()[-3:] == ["weights", "True", "False"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)]
)
def test_server_goes_on_after_a_program_that_does_not(
    folder: Path, address: str, number: signal.Signals
) -> None:
    """Ctrl-C ends its second job, which waits for its loader, and brings its weights back."""
    process = start(folder, address, num_fast=3)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    output, errors = finish(process)
    assert process.returncode != 0
    if number == signal.SIGINT:
        assert output.split()[-3:] == ["weights", "True", "False"], errors
    again = start(folder, address)
    finish(again)
    assert again.returncode == 0


@pytest.mark.nightly
def test_program_without_server_says_so(folder: Path) -> None:
    _, errors = finish(start(folder, "127.0.0.1:9"))
    assert "management-unreachable" in errors
