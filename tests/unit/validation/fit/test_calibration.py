"""Constants are fitted to calibration rows, and never to others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.errors import raises
from tests.support.timing.reference_rows import row, write_rows
from validation.fit.calibration import Constants, Fit, calibrate, least_squares
from validation.rows.reader import read_rows
from validation.rows.row import CannotPredict, Row
from waferstream.core.errors import ConfigError


def _same(_: Row, constants: Constants) -> float:
    return constants["hop_cycles"]


FIT = Fit("collectives", lambda rows: {"hop_cycles": sum(float(r.value) for r in rows)}, _same)


def _rows(folder: Path, **fields: str) -> Sequence[Row]:
    return read_rows(write_rows(folder / "rows.csv", row(**fields)))


@pytest.mark.parametrize("use", ["validation", "context"])
def test_calibrate_refuses_rows_that_are_not_calibration(tmp_path: Path, use: str) -> None:
    """The only way to a fit checks every row, so no caller can fit to others."""
    with raises(ConfigError, "row-not-calibration") as caught:
        calibrate(FIT, _rows(tmp_path, use=use))
    assert (caught.value.where or "").endswith("row K0001, field use")


@pytest.mark.parametrize("value", ["464 to 584", "0", "-5"])
def test_calibrate_needs_positive_numbers(tmp_path: Path, value: str) -> None:
    """A range as text is no value, and nothing takes zero time or less."""
    with raises(ConfigError, "value-not-positive") as caught:
        calibrate(FIT, _rows(tmp_path, use="calibration", value=value))
    assert (caught.value.where or "").endswith("row K0001, field value")


def test_calibrate_needs_rows() -> None:
    """Nothing is fitted to nothing."""
    with raises(ConfigError, "no-calibration-row"):
        calibrate(FIT, [])


def test_calibrate_reports_the_reason_of_the_model(tmp_path: Path) -> None:
    """A row that leaves too much unsaid is an error, not a stack trace."""

    def fit(_: Sequence[Row]) -> Constants:
        raise CannotPredict("the row gives no K", code="column-empty")

    with raises(ConfigError, "row-not-predicted") as caught:
        calibrate(Fit("collectives", fit, _same), _rows(tmp_path, use="calibration"))
    assert caught.value.value == "the row gives no K"


def test_calibrate_needs_a_model_for_each_constant(tmp_path: Path) -> None:
    """Two constants cannot follow from two rows of one model."""
    two = Fit("collectives", lambda _: {"hop_cycles": 1.0, "ramp_cycles": 2.0}, _same)
    one_model = [row("K0001", use="calibration"), row("K0002", use="calibration", value="7")]
    other = row("K0003", use="calibration", workload="2D reduce")
    with raises(ConfigError, "more-constants-than-models"):
        calibrate(two, read_rows(write_rows(tmp_path / "rows.csv", *one_model)))
    assert calibrate(two, read_rows(write_rows(tmp_path / "rows.csv", *one_model, other)))


def test_least_squares_fits_constants_of_different_magnitude() -> None:
    """A line through three points, with a slope of 3e9 and an offset of 2e-6 times as much."""
    points = [(x, 3e9 * x + 6e3) for x in (1e-6, 2e-6, 5e-6)]

    def errors(constants: Constants) -> list[float]:
        return [(constants["slope"] * x + constants["offset"]) / y - 1 for x, y in points]

    found = least_squares(errors, {"slope": 1e9, "offset": 1e4})
    assert found == pytest.approx({"slope": 3e9, "offset": 6e3}, rel=1e-6)
