"""Records hold every rate of a point with the ends of its intervals, by names with units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.reports.summaries import INTERVAL, simulated_curve
from waferstream.machine.attribution import Attribution
from waferstream.reports.curve.records import curve_records
from waferstream.reports.curve.result import RefusedPoint
from waferstream.reports.records import to_dataframe

CURVE = simulated_curve((1, 4), Attribution(compute=10**9), INTERVAL)


def test_rates_have_their_ranges_and_refused_points_their_reason() -> None:
    curve = replace(CURVE, refused=(RefusedPoint(2, "too few", "a-code"),))
    records = list(curve_records(curve))
    assert [record["num_csx"] for record in records] == [1, 2, 4]
    assert (records[1]["feasible"], records[1]["code"]) == (False, "a-code")
    assert "samples_per_s" not in records[1]
    point = curve.points[0]
    low, high = INTERVAL.around(point.emulated.samples_per_s)
    assert records[0]["samples_per_s_low"] == pytest.approx(low)
    assert records[0]["samples_per_s_high"] == pytest.approx(high)
    assert len(to_dataframe(records)) == 3
