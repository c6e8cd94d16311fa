"""The text of a simulation: one snapshot, and the parts that depend on the result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.reports.summaries import INTERVAL, UNKNOWN, simulated_curve
from waferstream.machine.attribution import Attribution
from waferstream.machine.energy import Footprint
from waferstream.reports.curve.result import CurveResult
from waferstream.reports.economics import training_bill
from waferstream.simulation.output import detail_text, simulation_text

SNAPSHOT = Path(__file__).with_name("simulation_text.txt")
STEP = Attribution(compute=999 * 10**9, weights=10**9)
BILL = training_bill(1e9, 1e5, 4, Footprint(kwh=0.25, kg_co2e=0.12, usd=0.5))
RESULT = simulated_curve((1, 4), STEP, INTERVAL, BILL)


def changed(**changes: object) -> CurveResult:
    """Return the result with changes of what a simulation adds to its points."""
    assert RESULT.simulation is not None
    return replace(RESULT, simulation=replace(RESULT.simulation, **changes))  # type: ignore[arg-type]


def test_simulation_text_equals_the_snapshot() -> None:
    assert simulation_text(RESULT) == SNAPSHOT.read_text().rstrip("\n")


def test_footnotes_of_a_compared_machine_are_its_own() -> None:
    """What both tables need said is said below the first; the interval is that of the machine."""
    other = replace(simulated_curve((1, 4), STEP, UNKNOWN), system="CS-3")
    text = simulation_text(replace(RESULT, others=(other,)))
    assert text.count("PFLOP/s: ") == 1
    assert text.count("50 % and 90 %: ") == 1
    assert text.count(f"Interval {UNKNOWN}.") == 1


def test_detail_text_without_a_bill_has_no_training_time() -> None:
    assert RESULT.simulation is not None
    detail = replace(RESULT.simulation.detail, bill=None)
    assert "tokens take" in detail_text(RESULT)
    assert "tokens take" not in detail_text(changed(detail=detail))


def test_detail_text_of_a_small_bill_has_significant_digits() -> None:
    assert RESULT.simulation is not None
    bill = training_bill(1e6, 1e5, 4, Footprint(kwh=0.222, kg_co2e=0.05, usd=0.0222))
    text = detail_text(changed(detail=replace(RESULT.simulation.detail, bill=bill)))
    assert "0.01111 system hours, 0.222 kWh, 50 g CO2e, 0.0222 USD" in text
