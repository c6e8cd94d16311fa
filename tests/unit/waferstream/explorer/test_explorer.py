"""Answers of the explorer are those of a simulation of the same configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.errors import raises
from tests.support.runs.explored import tiny_explorer
from tests.support.runs.tiny_run import write_run
from waferstream.core.errors import ConfigError
from waferstream.explorer.answer import Answer
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.export import settings_of, write_page
from waferstream.explorer.page import key_of
from waferstream.explorer.settings import Files, checked
from waferstream.simulation.capturing import captured_studies


@pytest.fixture
def explorer() -> Explorer:
    return tiny_explorer()


@pytest.mark.parametrize(
    "settings",
    [
        {"systems": 3, "batch": 24, "layers": 12, "density": 0.25, "fan_out": 2},
        pytest.param({}, marks=pytest.mark.nightly),
        pytest.param({"sequence": 64, "clock": 10**9, "layers": 2}, marks=pytest.mark.nightly),
    ],
    ids=lambda settings: "-".join(settings) or "at-rest",
)
def test_answer_is_that_of_a_simulation(
    explorer: Explorer, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the picosecond, though layers and zeros follow from another capture."""
    monkeypatch.chdir(tmp_path)
    files = Files(explorer.params, explorer.cluster)
    configured = files.with_settings(checked(settings, explorer.knobs), explorer.knobs)
    (study,) = captured_studies(configured.params, [configured.cluster], (1, 2, 3, 4))
    points, _ = study.possible_curve((1, 2, 3, 4))
    expected = {point.num_csx: point for point in points}
    found = {p.systems: p for p in explorer.answer(settings).points if p.systems in expected}
    assert {n: p.step_ps for n, p in found.items()} == {
        n: expected[n].emulated.step_ps for n in found
    }
    assert {n: p.micro_batch for n, p in found.items()} == {
        n: expected[n].micro_batch_size for n in found
    }
    assert found


@pytest.mark.nightly
def test_second_start_takes_what_the_first_has_captured(tmp_path: Path) -> None:
    """Though a file cannot keep the schedule of the optimizer."""
    schedule = [
        {"LinearLR": {"initial_learning_rate": 0.1, "end_learning_rate": 0, "total_iters": 8}}
    ]
    write_run(
        tmp_path, init__schedulers=schedule, init__backend__compile_dir=str(tmp_path / "kept")
    )
    first, second = (Explorer.of_files(tmp_path / "params.yaml", None) for _ in range(2))
    answer = first.answer({})
    assert list((tmp_path / "kept").glob("any_depth_*.json"))
    with patch("waferstream.simulation.capture.capture_shallow") as captures:
        assert second.answer({}) == answer
    assert not captures.called


def test_switched_answer_is_of_the_other_system(explorer: Explorer) -> None:
    answer = explorer.answer({"kind": 2})
    assert (explorer.answer({}).system, answer.system) == ("CS-2", "CS-3")
    assert answer.at_rest["clock"] == 1_085_000_000
    assert answer.band_note == ""


def test_answer_has_what_the_page_draws(explorer: Explorer) -> None:
    answer = explorer.answer({})
    for point in answer.points:
        assert sum(point.causes.values()) == pytest.approx(1)
        assert answer.wafers[point.micro_batch].pieces["code"] > 0
        assert answer.stalls[point.micro_batch]
        assert point.switches[0] == 1
    assert "num_csx" in answer.command
    assert {each.code for each in answer.refused} == {"batch-below-systems"}


def test_band_of_a_changed_machine_is_that_of_the_published(explorer: Explorer) -> None:
    as_published, changed = explorer.answer({}), explorer.answer({"clock": 10**9})
    assert as_published.band_note == ""
    assert "clock_hz" in changed.band_note
    assert [point.band for point in changed.points] == [point.band for point in as_published.points]


def test_number_of_systems_that_cannot_be_is_refused_with_the_curve(explorer: Explorer) -> None:
    answer = explorer.answer({"systems": 100})
    assert 100 in {each.systems for each in answer.refused}
    assert answer.points


def test_slowest_and_nearest_moves_are_answered_first(explorer: Explorer) -> None:
    moves = list(explorer.moves_from({"clock": 10**9}))
    rest = {knob.name: knob.value for knob in explorer.knobs} | {"clock": 10**9}
    moved = [[(name, move[name]) for name in rest if move[name] != rest[name]] for move in moves]
    names = dict.fromkeys(name for change in moved for name, _ in change)
    assert list(names)[:2] == ["layers", "sequence"]
    assert [value for ((name, value),) in filter(None, moved) if name == "sequence"] == [
        8, 32, 4, 64,
    ]  # fmt: skip
    assert "systems" not in names


def test_nonsense_is_refused(explorer: Explorer) -> None:
    with raises(ConfigError, "unknown-key"):
        explorer.answer({"warp": 9})


def test_exported_page_holds_one_knob_and_two(explorer: Explorer) -> None:
    keys = [key_of(settings) for settings in settings_of(explorer.knobs)]
    moved = [len(knob.coarse) - 1 for knob in explorer.knobs if knob.name != "systems"]
    pairs = (sum(moved) ** 2 - sum(count**2 for count in moved)) // 2
    assert len(keys) == len(set(keys)) == 1 + sum(moved) + pairs


def test_export_tells_the_time_left(
    explorer: Explorer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line now and then where there is no terminal for a bar."""
    few = [each for each in explorer.knobs if each.name in ("systems", "fan_out")]
    monkeypatch.setattr(explorer, "knobs", tuple(few))
    seconds = iter(range(0, 1000, 6))
    monkeypatch.setattr("waferstream.explorer.export.time.monotonic", lambda: next(seconds))
    write_page(explorer, tmp_path / "page.html")
    assert capsys.readouterr().err.splitlines() == [
        "1 of 3 settings simulated, 24 s left",
    ]


def test_exported_page_is_one_file_that_loads_nothing(
    explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [each for each in explorer.knobs if each.name in ("systems", "clock", "fan_out")]
    monkeypatch.setattr(explorer, "knobs", tuple(few))
    write_page(explorer, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for word in ("http://www.w3.org/2000/svg", "<!doctype html>"):
        assert word in text
        text = text.replace(word, "")
    assert "http" not in text
    assert "src=" not in text
    assert isinstance(explorer.answer({}), Answer)
