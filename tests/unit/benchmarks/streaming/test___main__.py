"""``python -m benchmarks.streaming`` checks its arms first, then keeps or restarts them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from benchmarks.streaming import __main__ as streaming
from benchmarks.streaming.arm import Opener
from benchmarks.streaming.workload import Layout, Workload

TINY = ["--hidden", "64", "--layers", "1", "--vocab", "64", "--sequence_length", "8"]


def test_main_refuses_wrong_arms_before_any_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arms take minutes to set up; the name of the last one is checked before the first starts."""
    monkeypatch.setattr(streaming, "Arm", lambda *_: pytest.fail("an arm was started"))
    result = tmp_path / "result.json"
    arguments = ["--json", str(result), *TINY, "--batch_sizes", "8", "--arms", "plain", "gpu"]
    assert streaming.main(arguments) == 1
    assert "[unknown-arm]" in capsys.readouterr().err
    assert not result.exists()


def test_best_takes_the_fastest_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline is the layout that was measured to be the fastest."""
    opened: list[object] = []

    class Fake:
        def __init__(self, _: str, plan: Sequence[Opener], warm_up_steps: int) -> None:
            (opener,) = plan
            assert isinstance(opener, partial)
            opened.append(opener.args[1])

        def run(self, steps: int) -> float:
            return 1.0 * steps

        def close(self) -> None:
            pass

    monkeypatch.setattr(streaming, "Arm", Fake)
    workload = Workload(64, 1, 64, 8, batch_size=8, precision="fp32", cores=2)
    seconds = {Layout(8): 3.0, Layout(2, 2): 1.0, Layout(4): 2.0}
    compared = streaming.compare(workload, ["best", "plain"], 1, 1, layouts=seconds)
    assert opened == [Layout(2, 2), Layout(8)]
    assert len(compared.as_json()["layouts"]) == 3


def test_layouts_that_are_nearly_as_fast_are_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a slow minute of the host does not decide between them."""
    slow_minute, next_minute = {1: 1.02, 2: 1.0, 4: 1.2}, {1: 0.9, 2: 0.95}
    measured: list[int] = []

    class Fake:
        def __init__(self, _: str, plan: Sequence[Opener]) -> None:
            (opener,) = plan
            assert isinstance(opener, partial)
            size = opener.args[1].micro_batch_size
            self._seconds = (next_minute if size in measured else slow_minute)[size]
            measured.append(size)

        def run(self, steps: int) -> float:
            return self._seconds * steps

        def close(self) -> None:
            pass

    monkeypatch.setattr(streaming, "Arm", Fake)
    workload = Workload(64, 1, 64, 8, batch_size=4, precision="fp32", cores=1)
    seconds = streaming.layout_seconds(workload)
    assert measured == [1, 2, 4, 1, 2]
    assert seconds == pytest.approx({Layout(1): 0.96, Layout(2): 0.975, Layout(4): 1.2})


@pytest.mark.parametrize(
    ("one_at_a_time", "lives"),
    [
        (False, "+plain +csx1 plain csx1 plain csx1 -csx1 -plain"),
        (True, "+plain plain -plain +csx1 csx1 -csx1 " * 2),
    ],
)
def test_compare_keeps_arms_alive_or_restarts_them(
    monkeypatch: pytest.MonkeyPatch, one_at_a_time: bool, lives: str
) -> None:
    """Through all trials or, where memory is short, for one trial each."""
    log: list[str] = []

    class Fake:
        def __init__(self, name: str, _: Sequence[Opener], warm_up_steps: int) -> None:
            self._name = name
            log.append(f"+{name}")

        def run(self, steps: int) -> float:
            log.append(self._name)
            return 1.0 * steps

        def close(self) -> None:
            log.append(f"-{self._name}")

    monkeypatch.setattr(streaming, "Arm", Fake)
    workload = Workload(64, 1, 64, 8, batch_size=8, precision="fp32", cores=2)
    compared = streaming.compare(workload, ["plain", "csx1"], 2, 3, one_at_a_time)
    assert log == lives.split()
    assert [trial.seconds for trial in compared.trials] == [3.0] * 4
