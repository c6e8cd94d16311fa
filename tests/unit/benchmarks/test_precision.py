"""The report of precisions: arms train, and their losses lie close together."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.precision import LOOKS, PRECISIONS, Curve, arms, draw, train

TINY = {"num_hidden_layers": 1, "hidden_size": 32, "num_heads": 2, "filter_size": 32}


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    chosen = [arm for arm in arms(["default"]) if arm.name in {"fp32", "cbfloat16", "wafer"}]
    return [train(arm, 2, 2, 8, TINY) for arm in chosen]


def test_losses_of_all_arms_are_close(curves: list[Curve]) -> None:
    assert len(curves) == 3
    exact = curves[0].losses
    assert all(curve.losses == pytest.approx(exact, rel=0.02) for curve in curves)


def test_every_model_has_an_arm_of_every_precision() -> None:
    names = [(arm.model, arm.name) for arm in arms(["default", "10M"])]
    assert {("10M", name) for name in PRECISIONS} < set(names)
    assert {("default", name) for name in ("torch", "wafer")} < set(names)


def test_every_arm_of_a_panel_has_a_line_of_its_own(tmp_path: Path) -> None:
    """An arm without a look would not be drawn, and matplotlib knows all dashes."""
    assert len({*LOOKS}) == len(LOOKS) >= len(PRECISIONS)
    drawn = [Curve(arm, [2.0, 1.0], [0.1]) for arm in arms(["10M"])]
    draw(drawn, tmp_path / "arms.png")
    assert (tmp_path / "arms.png").exists()


def test_picture_is_written(curves: list[Curve], tmp_path: Path) -> None:
    draw(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
