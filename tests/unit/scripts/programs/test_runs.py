"""Two runs of a public program: how they are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.programs.catalogue import PROGRAMS
from scripts.programs.program import Program
from scripts.programs.runs import Outcome, compare, table

LOOP = """import torch

model = torch.nn.Linear(2, 1)
torch.nn.init.ones_(model.weight)
torch.nn.init.zeros_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(STEPS):
    loss = model(torch.ones(4, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""

MADE = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

HAND_OVER = (
    "import cstorch; cstorch.hand_over(model, optimizer, cluster={'runtime': {'kind': 'local'}})\n"
)

PROGRAM = Program(
    "a loop",
    "owner/loop",
    "loop.py",
    (("loop.py", MADE, MADE + HAND_OVER),),
    r"loss ([\d.]+)",
    sizes=(("loop.py", "STEPS", "2"),),
)


@pytest.mark.nightly
def test_a_program_runs_both_ways(tmp_path: Path) -> None:
    checkout = tmp_path / "checkouts" / "loop"
    checkout.mkdir(parents=True)
    (checkout / "loop.py").write_text(LOOP)
    outcome = compare(PROGRAM, tmp_path / "checkouts", tmp_path / "runs")
    assert outcome.plain[0] == 4.0
    assert outcome.handed_over == pytest.approx(outcome.plain)
    assert outcome.is_good
    assert "| 1 | 2 | equal |" in table([outcome])


def test_a_run_without_losses_is_not_equal() -> None:
    assert not Outcome(PROGRAM, (), ()).is_good
    assert not Outcome(PROGRAM, (1.0,), (1.1,)).is_good


def test_at_most_three_lines_change() -> None:
    assert all(1 <= program.num_changed_lines <= 3 for program in PROGRAMS)
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
