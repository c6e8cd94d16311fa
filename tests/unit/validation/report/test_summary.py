"""Errors of families, and goals on validation rows only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.timing.reference_rows import row, write_rows
from validation.families.prediction import Compared
from validation.report.summary import GOALS, Errors, Goal, belongs, error_table, summaries
from validation.rows.reader import read_rows
from validation.rows.row import Row

Make = Callable[..., list[Compared]]


@pytest.fixture
def compared(tmp_path: Path) -> Make:
    """Make rows of a family with given relative errors."""

    def make(*errors: float, family: str = "training CS-2", **fields: str) -> list[Compared]:
        rows = [row(f"K{index}", **fields) for index, _ in enumerate(errors)]
        read = read_rows(write_rows(tmp_path / "rows.csv", *rows))
        return [
            Compared(one, family, 100.0 * (1 + error), 100.0)
            for one, error in zip(read, errors, strict=True)
        ]

    return make


def test_errors_are_absolute_and_name_the_worst_row(compared: Make) -> None:
    """-30 %, 10 % and 20 % have mean 20, median 20, and the first is the worst."""
    errors = Errors.of(compared(-0.3, 0.1, 0.2))
    assert (errors.count, errors.worst_row) == (3, "K0")
    assert (errors.mean, errors.median, errors.max) == pytest.approx((0.2, 0.2, 0.3))


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30))
def test_mean_and_median_errors_are_at_most_the_worst(ratios: list[float]) -> None:
    """Checked for any errors."""
    plain = Row("kernels", "f", 2, "K1", "validation", 1.0, "cycles", "silicon", {})
    errors = Errors.of([Compared(plain, "a", ratio, 1.0) for ratio in ratios])
    assert 0 <= errors.median <= errors.max
    assert errors.mean <= errors.max * (1 + 1e-12)


def test_summaries_separate_evidence_and_mark(compared: Make) -> None:
    """Silicon and simulator, calibration and validation, and rows on which nothing rests."""
    rows = [
        *compared(0.1, evidence="silicon"),
        *compared(0.2, evidence="simulator"),
        *compared(0.3, 0.5, evidence="simulator", use="calibration"),
    ]
    found = {(one.evidence, one.mark): one.errors.mean for one in summaries(rows, {"K0", "K1"})}
    assert found == pytest.approx(
        {
            ("silicon", "validation"): 0.1,
            ("simulator", "validation"): 0.2,
            ("simulator", "calibration"): 0.4,
        }
    )
    assert "unused" in {one.mark for one in summaries(rows, set())}


def test_goal_errors_count_validation_rows_of_its_families(compared: Make) -> None:
    """Calibration rows and other families do not count."""
    goal = Goal("training", "training", 0.08, worst=0.2)
    assert goal.errors(compared(0.0, use="calibration") + compared(0.0, family="GEMM")) is None
    both = compared(0.05) + compared(0.15, family="training CS-3") + compared(9, use="context")
    errors = goal.errors(both)
    assert errors is not None
    assert errors.count == 2


@pytest.mark.parametrize(
    ("errors", "met"), [((0.0, 0.15), True), ((0.1, 0.1), False), ((0.21, *[0.0] * 9), False)]
)
def test_goal_limits_mean_and_worst(compared: Make, errors: tuple[float, ...], met: bool) -> None:
    """Either limit can fail it."""
    goal = Goal("training", "training", 0.08, worst=0.2)
    assert goal.met_by(Errors.of(compared(*errors))) is met
    assert goal.verdict(Errors.of(compared(*errors))) == ("met" if met else "missed")


def test_belongs_compares_whole_words() -> None:
    """``training CS-2`` belongs to ``training``, ``GEMVs`` not to ``GEMV``."""
    assert belongs("training CS-2", "training")
    assert belongs("GEMV", "GEMV")
    assert not belongs("GEMVs", "GEMV")


def test_goals_are_unchanged() -> None:
    """2 % for collectives, 4 % for training with no row above 12 %, and so on."""
    assert {goal.families: (goal.mean, goal.worst) for goal in GOALS} == {
        "collectives": (0.02, None),
        "single PE": (0.10, None),
        "GEMM": (0.10, None),
        "GEMV": (0.10, None),
        "training CS-2": (0.04, 0.12),
        "training CS-3": (0.04, 0.12),
        "start-up": (0.15, None),
        "prefill": (0.10, None),
        "decode": (0.10, None),
        "inference service": (0.20, 0.20),
        "GPU training": (0.05, None),
        "GPU inference": (0.10, None),
    }


def test_error_table_shows_every_family_and_missed_goals(compared: Make) -> None:
    """Families of a goal follow its line; families without goal have a line of their own."""
    rows = [
        *compared(0.05, 0.15, family="GPU training FSDP"),
        *compared(0.3, family="GPU training DeepSpeed"),
        *compared(2.7, family="evaluation"),
        *compared(0.0, family="GEMM", use="calibration"),
        *compared(0.0, family="stencil", use="context"),
    ]
    table = error_table(
        rows, ["GEMM", "GPU training FSDP", "GPU training DeepSpeed", "evaluation", "stencil"]
    )
    assert [(line[0], line[1], line[2], line[-1]) for line in table.rows] == [
        ("**GEMM**", "0", "-", "mean at most 10 %: not measured"),
        (
            "**GPU clusters, training**",
            "3",
            "16.7 %",
            "mean at most 5 %: missed",
        ),
        ("GPU training FSDP", "2", "10.0 %", ""),
        ("GPU training DeepSpeed", "1", "30.0 %", ""),
        ("evaluation", "1", "270.0 %", "no goal"),
        ("stencil", "0", "-", "not validated: 1 context"),
    ]
