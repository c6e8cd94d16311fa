"""Two runs of a public program: how they are compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.programs.catalogue import PROGRAMS
from scripts.programs.page import HEAD, with_outcomes
from scripts.programs.program import Program
from scripts.programs.runs import HOME, Outcome, compare

WHERE = "WAFERSTREAM_CHECKOUTS"
CHECKOUTS = os.environ.get(WHERE, "")

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


def test_a_run_without_losses_is_not_equal() -> None:
    assert not Outcome(PROGRAM, (), ()).is_good
    assert not Outcome(PROGRAM, (1.0,), (1.1,)).is_good


def test_the_page_has_what_was_run() -> None:
    """Rows of other programs stay; the changed lines are those of the catalogue."""
    first, second = PROGRAMS[:2]
    page = with_outcomes(f"a\n{HEAD}\nb\n", [Outcome(second, (1.0,), (1.1,))])
    assert "| 1 | not equal | 1e-01 |" in page
    page = with_outcomes(page, [Outcome(first, (1.0, 2.0), (1.0, 2.0))])
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert [row.partition("]")[0] for row in rows] == [f"| [{x.name}" for x in (first, second)]
    assert "| 1 | 2 | equal | 0e+00 |" in rows[0]
    assert all(f"\n+{line}\n" in page for program in PROGRAMS for line in program.changed_lines)
    assert page.startswith("a\n")
    assert page.endswith("b\n")


def test_the_page_of_the_site_is_current() -> None:
    """With a row for each program, of equal losses."""
    page = (HOME / "docs" / "compatibility.md").read_text()
    assert with_outcomes(page, []) == page
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    for program in PROGRAMS:
        (row,) = (row for row in rows if row.startswith(f"| [{program.name}]"))
        assert "| equal |" in row


@pytest.mark.nightly
@pytest.mark.skipif(not CHECKOUTS, reason=f"{WHERE} names no folder of checkouts")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_public_program_has_the_losses_of_plain_pytorch(program: Program, tmp_path: Path) -> None:
    """Where its checkout is at hand."""
    if not (Path(CHECKOUTS) / program.repository.partition("/")[2]).is_dir():
        pytest.skip(f"no checkout of {program.repository}")
    assert compare(program, Path(CHECKOUTS), tmp_path).is_good


def test_at_most_three_lines_change() -> None:
    assert all(len(program.changed_lines) <= 3 for program in PROGRAMS)
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
