"""Errors in groups: how many, mean, median, worst; and goals on validation rows alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reference_rows import row, write_rows
from validation.families.replays import Compared
from validation.report.summary import GOALS, Errors, Goal, belongs, summaries
from validation.rows.row import Row, read_rows


@pytest.fixture
def compared(tmp_path):
    """Makes rows of a family with given relative errors."""

    def make(*errors, family="training CS-2", **fields):
        rows = [row(f"K{index}", **fields) for index, _ in enumerate(errors)]
        read = read_rows(write_rows(tmp_path / "rows.csv", *rows))
        return [
            Compared(one, family, 100.0 * (1 + error), 100.0)
            for one, error in zip(read, errors, strict=True)
        ]

    return make


def test_errors_are_absolute_and_name_the_worst_row(compared):
    """-30 %, 10 % and 20 % have mean 20, median 20, and the first is the worst."""
    errors = Errors.of(compared(-0.3, 0.1, 0.2))
    assert (errors.count, errors.worst_row) == (3, "K0")
    assert (errors.mean, errors.median, errors.max) == pytest.approx((0.2, 0.2, 0.3))


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30))
def test_mean_and_median_lie_below_the_worst(ratios):
    """Whatever the errors are."""
    plain = Row("kernels", "f", 2, "K1", "validation", 1.0, "cycles", "silicon", {})
    errors = Errors.of([Compared(plain, "a", ratio, 1.0) for ratio in ratios])
    assert 0 <= errors.median <= errors.max
    assert errors.mean <= errors.max * (1 + 1e-12)


def test_evidence_and_use_are_never_mixed(compared):
    """Silicon and simulator, calibration and validation stand apart."""
    rows = [
        *compared(0.1, evidence="silicon"),
        *compared(0.2, evidence="simulator"),
        *compared(0.3, 0.5, evidence="simulator", use="calibration"),
    ]
    found = {(one.evidence, one.use): one.errors.mean for one in summaries(rows)}
    assert found == pytest.approx(
        {
            ("silicon", "validation"): 0.1,
            ("simulator", "validation"): 0.2,
            ("simulator", "calibration"): 0.4,
        }
    )


def test_a_goal_looks_at_validation_rows_of_its_families(compared):
    """A good fit to calibration rows meets no goal; neither do other families."""
    goal = Goal("training", "training", 0.08, worst=0.2)
    assert goal.errors(compared(0.0, use="calibration") + compared(0.0, family="GEMM")) is None
    both = compared(0.05) + compared(0.15, family="training CS-3") + compared(9, use="context")
    assert goal.errors(both).count == 2


@pytest.mark.parametrize(
    ("errors", "met"), [((0.0, 0.15), True), ((0.1, 0.1), False), ((0.21, *[0.0] * 9), False)]
)
def test_a_goal_may_bound_mean_and_worst(compared, errors, met):
    """Either bound can fail it."""
    goal = Goal("training", "training", 0.08, worst=0.2)
    assert goal.met_by(goal.errors(compared(*errors))) is met


def test_a_part_of_a_family_has_its_name_first():
    """``training CS-2`` is a part of ``training``; ``GEMVs`` is none of ``GEMV``."""
    assert belongs("training CS-2", "training")
    assert belongs("GEMV", "GEMV")
    assert not belongs("GEMVs", "GEMV")


def test_the_goals_are_those_that_were_set():
    """Two percent for collectives, eight for training with none beyond twenty, and so on."""
    assert {goal.families: (goal.mean, goal.worst) for goal in GOALS} == {
        "collectives": (0.02, None),
        "single PE": (0.10, None),
        "GEMM": (0.10, None),
        "GEMV": (0.10, None),
        "training": (0.08, 0.20),
        "prefill": (0.10, None),
        "decode": (0.10, None),
        "GPU training": (0.08, None),
        "GPU inference": (0.08, None),
    }
