"""Intervals cover the share that they name, widen with the distance, and are honestly unknown."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from math import log
from pathlib import Path
from random import Random

import pytest

from waferstream.machine.intervals import (
    Interval,
    Residual,
    Residuals,
    Setting,
    Unknown,
    interval_of,
)

_NUMBERS = count()


def _row(
    error: float | None,
    model: str = "m",
    family: str = "training CS-2",
    decades: float = 0.0,
    **sizes: float,
) -> Residual:
    group = family.partition(" ")[0]
    setting = Setting(family, "CS-2", sizes)
    return Residual(f"R{next(_NUMBERS)}", group, model, setting, error, decades)


def _rows(scale: float, models: int, family: str, seed: int) -> list[Residual]:
    """Return a calibrated row, and normal errors of models with five rows each."""
    random = Random(seed)
    errors = (random.gauss(0, scale) for _ in range(models * 5))
    tested = [_row(error, f"{family} {index // 5}", family) for index, error in enumerate(errors)]
    return [_row(None, "calibrated", family), *tested]


def _known(found: Interval | Unknown) -> Interval:
    assert isinstance(found, Interval)
    return found


def _covered(interval: Interval, rows: Iterable[Residual]) -> tuple[float, float]:
    errors = [row.error for row in rows if not row.is_calibrated]
    half, most = log(interval.half), log(interval.nine_tenths)
    shares = (sum(error <= limit for error in errors) / len(errors) for limit in (half, most))
    return next(shares), next(shares)


@pytest.mark.parametrize("scale", [0.01, 0.3])
def test_intervals_cover_the_share_that_they_name(scale: float) -> None:
    """Of new rows of a family, beside one whose errors are ten times as large."""
    residuals = Residuals([*_rows(scale, 20, "training CS-2", 1), *_rows(10 * scale, 20, "GPU", 2)])
    interval = _known(residuals.interval(Setting("training CS-2", "CS-2", {})))
    half, most = _covered(interval, _rows(scale, 200, "training CS-2", 3))
    assert half == pytest.approx(0.5, abs=0.1)
    assert most == pytest.approx(0.9, abs=0.05)


def test_intervals_widen_with_the_distance_to_the_nearest_calibrated_row() -> None:
    rows = _rows(0.05, 10, "training CS-2", 4)
    near = _row(None, "calibrated", parameters=1e9, systems=1)
    residuals = Residuals([*rows[1:], near])
    found = [
        _known(residuals.interval(Setting("training CS-2", "CS-2", {"parameters": size})))
        for size in (1e9, 1e10, 1e11)
    ]
    widths = [log(interval.nine_tenths) for interval in found]
    assert [interval.decades for interval in found] == pytest.approx([0, 1, 2])
    assert widths == pytest.approx([widths[0], 2 * widths[0], 3 * widths[0]])
    assert [interval.is_extrapolated for interval in found] == [False, True, True]
    assert {interval.nearest for interval in found} == {near.row}


def test_errors_far_from_calibrated_rows_do_not_widen_the_interval_beside_one() -> None:
    near = Residuals([_row(None), *(_row(0.1, f"{index}") for index in range(8))])
    far = Residuals([_row(None), *(_row(0.2, f"{index}", decades=1) for index in range(8))])
    half = [_known(each.at("training CS-2", "training", 0)).half for each in (near, far)]
    assert half[0] == pytest.approx(half[1])


def test_a_family_without_errors_takes_those_of_its_group() -> None:
    rows = [*_rows(0.1, 10, "training CS-2", 5), _row(None, "calibrated", "training CS-3")]
    residuals = Residuals(rows)
    own, other = (
        _known(residuals.interval(Setting(f"training CS-{generation}", "CS-2", {})))
        for generation in (2, 3)
    )
    assert log(other.nine_tenths) == pytest.approx(log(own.nine_tenths), rel=0.05)


@pytest.mark.parametrize(
    "setting",
    [Setting("training CS-2", "CS-9", {}), Setting("juggling", "CS-2", {})],
    ids=["machine", "family"],
)
def test_what_nobody_measured_is_unknown(setting: Setting) -> None:
    found = interval_of(setting)
    assert isinstance(found, Unknown)
    assert setting.family in found.reason
    assert setting.machine in found.reason
    assert "validation/data" in found.remedy


def test_interval_around_a_value_is_a_factor_either_way() -> None:
    interval = Interval(1.1, 1.25, 0.0, "T0001")
    assert interval.around(100) == pytest.approx((80, 125))
    assert interval.around(100, "half") == pytest.approx((90.909, 110), rel=1e-4)


def test_residuals_survive_their_file(tmp_path: Path) -> None:
    rows = Residuals([_row(None), _row(0.25, parameters=1e9)])
    rows.write(tmp_path / "residuals.json")
    assert Residuals.read(tmp_path / "residuals.json").rows == rows.rows
