"""A cell trains on a cluster elsewhere, with its loss live below it, and can be interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.host.attached import server_process
from tests.support.runs.tiny_run import ROOT

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

CELL = """%%waferstream --num_csx 2 --mgmt_address {address}
import threading
import _thread
import torch
import cstorch

def rows(num_fast):
    import time
    for index in range(100):
        if index >= num_fast:
            time.sleep(100)
        x = torch.ones(8, 4)
        yield x, x.sum(dim=1, keepdim=True)

net = torch.nn.Linear(4, 1)
backend = cstorch.backend("CSX")
cstorch.amp.enable_mixed_precision(False)
model = cstorch.compile(net, backend)
optimizer = cstorch.optim.SGD(model.parameters(), lr=0.01)

@cstorch.trace
def step(x, y):
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

losses = []

@cstorch.step_closure
def keep(loss):
    losses.append(loss.item())
    if {num_fast} == 3:
        threading.Timer(1.0, _thread.interrupt_main).start()

data = cstorch.utils.data.DataLoader(rows, {num_fast})
loop = cstorch.utils.data.DataExecutor(data, num_steps=6, activation_steps=2)
for x, y in loop:
    keep(step(x, y))
"""
"""With a loader that stops, an interrupt arrives while the job waits for it."""

CHECK = "print(len(losses), losses[-1] < losses[0], net.weight.isfinite().all().item())"


@pytest.mark.nightly
def test_cell_trains_elsewhere_and_shows_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with server_process(tmp_path) as (_, address):
        cells = [
            "%load_ext waferstream.notebook",
            CELL.format(address=address, num_fast=100),
            CHECK,
            CELL.format(address=address, num_fast=3),
            CHECK,
        ]
        notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
        nbclient.NotebookClient(
            notebook,
            timeout=110,
            allow_error_names=["KeyboardInterrupt"],
            resources={"metadata": {"path": str(tmp_path)}},
        ).execute()
    trained, printed, interrupted, after = [cell.outputs for cell in notebook.cells[1:]]
    (shown,) = [each for each in trained if each.output_type == "display_data"]
    assert shown.data["text/plain"].startswith("Finished | step 6 | loss ")
    assert "2 x CS-2" in shown.data["text/plain"]
    assert printed[0].text == "3 True True\n"
    assert interrupted[-1].ename == "KeyboardInterrupt"
    assert after[0].text == "1 False True\n"
