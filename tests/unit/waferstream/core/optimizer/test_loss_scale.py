"""The rule of the dynamic loss scale, against sequences worked out by hand."""

from __future__ import annotations

import pytest

from waferstream.core.optimizer.loss_scale import LossScale, LossScaleRule


def after(rule: LossScaleRule, start: float, finite: str) -> list[float]:
    """Return the scale after each step; ``finite`` has a ``+`` or ``-`` per step."""
    current, scales = LossScale(start), []
    for sign in finite:
        current = rule.after(current, sign == "+")
        scales.append(current.scale)
    return scales


@pytest.mark.parametrize(
    ("options", "finite", "scales"),
    [
        ({}, "+++++++", [8, 8, 16, 16, 16, 32, 32]),  # more than two steps, then three more
        ({}, "-+-++-", [4, 4, 2, 2, 2, 1]),  # any overflow halves and starts to count again
        ({"maximum": 16.0}, "++++++", [8, 8, 16, 16, 16, 16]),
        ({"minimum": 4.0}, "---", [4, 4, 4]),
        ({"overflow_tolerance": 0.5}, "+-+", [8, 8, 16]),  # 1 of 2 is not above one half
        ({"overflow_tolerance": 0.5}, "+--", [8, 8, 4]),  # 2 of 3 is
    ],
)
def test_scale_after_good_and_bad_steps(
    options: dict[str, float], finite: str, scales: list[float]
) -> None:
    limits = {"minimum": 2.0**-14, "maximum": 2.0**15, "overflow_tolerance": 0.0, **options}
    minimum, maximum, tolerance = limits.values()
    rule = LossScaleRule(2, minimum, maximum, tolerance)
    assert after(rule, 8.0, finite) == scales


def test_skipped_steps_are_counted() -> None:
    rule = LossScaleRule(2, 1.0, 2.0**15)
    current = LossScale(2.0**10)
    for is_finite in (False, True, False, True):
        current = rule.after(current, is_finite)
    assert current.num_skipped_steps == 2
    assert current.is_finite


def test_scale_is_exhausted_by_an_overflow_at_the_minimum() -> None:
    """The scale that the rule asks for is below the one that is allowed."""
    rule = LossScaleRule(2000, minimum=4.0, maximum=8.0)
    first = rule.after(LossScale(8.0), is_finite=False)
    assert (first.scale, first.is_exhausted) == (4.0, False)
    second = rule.after(first, is_finite=False)
    assert (second.scale, second.unlimited_scale, second.is_exhausted) == (4.0, 2.0, True)
    assert not rule.after(second, is_finite=True).is_exhausted
