"""A session of parts: each has its limit, none takes others along, and the file is always whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_session import __main__ as session
from benchmarks.gpu_session.__main__ import Outcome, main, run_part
from benchmarks.gpu_session.parts import PARTS
from benchmarks.gpu_session.settings import Settings

TINY = Settings("cpu", small=True)
NOTING = """
import pathlib, sys, time
part = pathlib.Path(sys.argv[3] + ".part")
part.write_text('{"rate": 7}')
part.rename(sys.argv[3])
"""


@pytest.mark.parametrize(
    ("ends", "limit_s", "status"),
    [
        ("", 60.0, "passed"),
        ("raise ValueError('no GPU')", 60.0, "failed"),
        ("time.sleep(60)", 0.5, "cut"),
    ],
)
def test_part_keeps_its_figures_however_it_ends(
    ends: str, limit_s: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, by an error, whose text is kept, or at its limit."""
    monkeypatch.setattr(session, "PROGRAM", (sys.executable, "-S", "-c", NOTING + ends))
    outcome = run_part("device", TINY, limit_s, tmp_path)
    if status != "cut":  # an interpreter may take longer than the limit to start
        assert outcome.figures == {"rate": 7}
    assert outcome.status == status
    assert (outcome.error is None) == (status == "passed")
    assert status != "failed" or "ValueError: no GPU" in str(outcome.error)


def test_figures_are_known_while_a_part_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that they survive the end of the session."""
    monkeypatch.setattr(session, "_NOTE_S", 0.02)
    wait = "while not pathlib.Path(sys.argv[3] + '.seen').exists(): time.sleep(0.01)"
    monkeypatch.setattr(session, "PROGRAM", (sys.executable, "-S", "-c", NOTING + wait))
    seen: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        seen.append(outcome)
        if outcome.figures:
            (tmp_path / "device.json.seen").touch()

    assert run_part("device", TINY, 60.0, tmp_path, note).status == "passed"
    assert (seen[-1].status, seen[-1].figures) == ("running", {"rate": 7})


def test_session_goes_on_behind_a_part_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says so in its exit status; the file has every part."""
    program = "import sys; sys.exit({'device': 3}.get(sys.argv[1], 0))"
    monkeypatch.setattr(session, "PROGRAM", (sys.executable, "-S", "-c", program))
    path = tmp_path / "gpu.json"
    words = ["--device", "cpu", "--small", "--json", str(path), "--parts", "device", "copies"]
    assert main(words) == 1
    parts = json.loads(path.read_text())["parts"]
    assert {name: part["status"] for name, part in parts.items()} == {
        "device": "failed",
        "copies": "passed",
    }


def test_parts_that_no_time_is_left_for_do_not_begin(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    assert main(["--device", "cpu", "--json", str(path), "--minutes", "0"]) == 1
    parts = json.loads(path.read_text())["parts"]
    assert [*parts] == [*PARTS]
    assert {part["status"] for part in parts.values()} == {"not begun"}


@pytest.mark.nightly
@pytest.mark.timeout(880)  # below that of the fault handler
def test_whole_session_runs_in_small_on_the_processor(tmp_path: Path) -> None:
    """Every part passes, and has found what it is for."""
    path = tmp_path / "gpu.json"
    words = ["--device", "cpu", "--small", "--minutes", "14", "--json", str(path)]
    status = main(words)
    parts = json.loads(path.read_text())["parts"]
    assert {part["status"] for part in parts.values()} == {"passed"}, parts
    assert status == 0
    assert parts["systems"]["figures"]["equal_bits"]
    assert parts["copies"]["figures"]["shares"]["kernels"] > 0
    assert parts["gpt_124m"]["figures"]["csx1_over_memory"]["median"] > 0
    beyond = parts["beyond"]["figures"]
    assert beyond["state_bytes"] > 4 << 20
