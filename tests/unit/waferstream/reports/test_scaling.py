"""Runs on several numbers of systems, compared with proportional growth and each other."""

from dataclasses import replace

import pytest

from tests.support.summaries import DIGEST, summary, with_digest
from waferstream.reports.scaling import Scaling
from wsc.core.errors import WaferStreamError


def test_efficiency_is_pace_over_proportional_growth_from_the_first_point_on() -> None:
    """Runs are put in order; a reduce of the length of four systems' compute halves their pace."""
    scaling = Scaling.of([summary(8, reduce_ps=1_000_000), summary(2)])
    assert [point.num_csx for point in scaling.points] == [2, 8]
    assert [point.emulated_efficiency for point in scaling.points] == pytest.approx([1.0, 0.5])
    assert [point.measured_efficiency for point in scaling.points] == pytest.approx([1.0, 0.25])


def test_runs_that_agree_have_one_digest() -> None:
    """And runs that do not have none."""
    assert Scaling.of([summary(1), summary(2)]).weights_sha256 == DIGEST
    assert Scaling.of([summary(1), with_digest(summary(2), "cd")]).weights_sha256 is None


@pytest.mark.parametrize(
    "lack", [{"status": "failed"}, {"weights_sha256": None}, {"measured": None}, {"emulated": None}]
)
def test_only_completed_trainings_are_compared(lack: dict[str, str | None]) -> None:
    """The error names the run."""
    with pytest.raises(WaferStreamError, match="num_csx=2"):
        Scaling.of([summary(1), replace(summary(2), **lack)])
