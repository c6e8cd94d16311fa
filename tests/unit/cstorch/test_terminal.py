"""What a program of one's own says on the terminal."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import cstorch
from cstorch import terminal
from tests.support.host.terminals import terminal_of_test
from tests.support.programs.cstorch_program import (
    evaluation_step,
    executor,
    losses,
    running_backend,
    training_step,
)
from waferstream.host.terminal import TerminalHandler

PROGRAM = """
import cstorch, torch
model = torch.nn.Linear(4, 1)
config = cstorch.CSConfig(target_device="cs3", max_steps=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = cstorch.Trainer(
    model=model, optimizer=optimizer, config=config, loss_fn=torch.nn.functional.mse_loss
)
trainer.fit([(torch.ones(4, 4), torch.ones(4, 1))])
print(trainer.backend.report())
trainer.shutdown()
"""


@pytest.mark.parametrize("device", ["CSX", "CPU"])
def test_loops_show_their_progress(
    device: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar, and one line at the end of a short loop, in the vendor's format."""
    terminal = terminal_of_test(monkeypatch)
    logging.getLogger("waferstream").addHandler(TerminalHandler())
    with caplog.at_level(logging.INFO, "waferstream"), running_backend(device=device) as backend:
        losses(training_step(backend), executor(3))
        losses(evaluation_step(backend), executor(2))
        backend.session.settings.logs_progress, backend.session.settings.bars = False, ()
        losses(training_step(backend), executor(1))
    lines = [message for message in caplog.messages if message.startswith("|")]
    last = [line for line in lines if ", Step=3, " in line or "Batch=2, " in line]
    assert last[0].startswith(f"| Train Device={device}, Step=3, Loss=")
    assert last[1].startswith(f"| Eval Device={device}, GlobalStep=3, Batch=2, Loss=")
    assert ("EmulatedRate=" in last[0]) == (device == "CSX")
    assert not any(", Step=4, " in line for line in lines)
    bars = terminal.getvalue()
    assert "Train:   0%" in bars
    assert "Evaluate:   0%" in bars
    assert "0/3" in bars
    assert "0/2" in bars
    assert "0/1" not in bars


def test_report_states_emulated_rate_and_causes(backend: cstorch.Backend) -> None:
    """Before the first step there is nothing to report but that."""
    assert backend.report().startswith("Steps of training: 0, on 2 x CS-")
    losses(training_step(backend), executor(3))
    text = backend.report()
    for what in ("Steps of training: 3", "Emulated start-up", "Emulated rate", "overhead"):
        assert what in text


def test_level_of_the_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that wants warnings alone gets them, in the usual form; others get all lines."""
    for chosen, level in ((logging.WARNING, logging.WARNING), (logging.NOTSET, logging.INFO)):
        log = logging.Logger("waferstream", chosen)
        monkeypatch.setattr(terminal, "log", log)
        terminal.log_to_terminal()
        assert len(log.handlers) == 1
        assert log.level == level


def test_own_program_logs_and_finds_its_cluster_file(tmp_path: Path) -> None:
    """Log lines go to stderr, so that they do not mix with what the program prints."""
    (tmp_path / "cluster.yaml").write_text("runtime: {kind: local}\n")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=100, check=True
    )
    assert "The machine is that of" in run.stderr
    assert "Emulated start-up:" in run.stderr
    assert "| Train Device=CSX, Step=2, Loss=" in run.stderr
    assert "1 x CS-3" in run.stdout
