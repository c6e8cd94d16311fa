"""Processor time of a step is stated by the kind of process that takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.processes import Busy
from benchmarks.streaming import processor_time
from benchmarks.streaming.arm import Opener

WORDS = ["--hidden", "64", "--layers", "1", "--vocab", "64", "--sequence_length", "8"]


class FakeArm:
    """An arm that counts its steps."""

    pids = (1,)
    steps = 0

    def __init__(self, name: str, _: Sequence[Opener], warm_up_steps: int) -> None:
        self.name = name
        FakeArm.steps = warm_up_steps

    def run(self, steps: int) -> float:
        FakeArm.steps += 1 + steps
        return 1.0

    def close(self) -> None:
        pass


def test_time_is_per_step_and_by_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of the warm-up do not count, all others do."""

    def busy(root: int) -> Iterator[Busy]:
        assert root == 1
        names = {"ray::csx-0": 2.0, "ray::csx-1": 3.0, "ray::wgt-0": 0.5, "ray::br-0": 0.25}
        for pid, (name, s) in enumerate({**names, "raylet": 0.125, "python": 1.0}.items()):
            yield Busy(pid, name, 100.0 + s * FakeArm.steps)

    monkeypatch.setattr(processor_time, "Arm", FakeArm)
    monkeypatch.setattr(processor_time, "busy_below", busy)
    file = tmp_path / "result.json"
    arguments = [*WORDS, "--arms", "csx2", "--steps", "3", "--repeats", "2", "--json", str(file)]
    assert processor_time.main(arguments) == 0
    expected = {"systems": 5.0, "weight servers": 0.5, "switches": 0.25, "others": 1.125}
    (found,) = json.loads(file.read_text())["arms"].values()
    assert found["seconds"] == {**expected, "sum": 6.875}
    assert found["of_first"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert capsys.readouterr().out.startswith("csx2: systems 5.00 s, weight servers 0.50 s")
