"""Options and first fields of results that benchmarks and validation share."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import fabric, simulate_curve
from benchmarks.streaming import __main__ as streaming
from validation import __main__ as validation
from validation.closed_forms import __main__ as closed_forms
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

Main = Callable[[list[str]], int]

COMMANDS: dict[str, Main] = {
    "closed_forms": closed_forms.main,
    "fabric": fabric.main,
    "simulate_curve": simulate_curve.main,
    "streaming": streaming.main,
    "validation": validation.main,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_new_file_is_checked_before_a_command_measures(command: str, tmp_path: Path) -> None:
    """A missing folder is reported at once, not after an hour."""
    with pytest.raises(SystemExit):
        COMMANDS[command](["--json", str(tmp_path / "missing" / "result.json")])


def test_every_benchmark_writes_its_result_as_json() -> None:
    """But for the parts that a benchmark starts, and for what draws its result."""
    folder = Path(fabric.__file__).parent
    parts = {"driver.py", "parts.py", "picture.py", "relay.py", "restless.py", "sniffer.py"}
    texts = {path: path.read_text() for path in folder.rglob("*.py") if path.name not in parts}
    commands = [path for path, text in texts.items() if '__name__ == "__main__"' in text]
    assert len(commands) > 10
    assert not [path for path in commands if '"--json"' not in texts[path]]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("streaming", ["--json", "result.json", "--steps", "0"]),
        ("streaming", ["--json", "result.json", "--repeats", "-1"]),
        ("streaming", ["--json", "result.json", "--layers", "x"]),
        ("simulate_curve", ["--repeats", "0"]),
        ("fabric", ["--words", "0"]),
    ],
)
def test_positive_is_checked_before_a_command_measures(command: str, options: list[str]) -> None:
    """Steps, repeats and sizes are whole numbers from 1."""
    with pytest.raises(SystemExit):
        COMMANDS[command](options)


def test_new_file_may_replace_a_file_but_no_folder(tmp_path: Path) -> None:
    """The file may exist or not; its folder must exist."""
    assert new_file(str(tmp_path / "result.json")) == tmp_path / "result.json"
    for wrong in (tmp_path, tmp_path / "missing" / "result.json"):
        with pytest.raises(ArgumentTypeError):
            new_file(str(wrong))


def test_positive_refuses_numbers_below_one() -> None:
    """1 is the smallest."""
    assert positive("1") == 1
    with pytest.raises(ArgumentTypeError):
        positive("0")


def test_new_result_names_question_code_and_host(tmp_path: Path) -> None:
    """Numbers of another host or commit must not be compared by mistake."""
    write_json(tmp_path / "result.json", new_result("how fast?") | {"answer": (1.5, 2.5)})
    kept = json.loads((tmp_path / "result.json").read_text())
    assert list(kept) == ["question", "date", "git_commit", "host", "load_1min", "answer"]
    assert kept["question"] == "how fast?"
    assert kept["host"]["torch"] == torch.__version__
    assert kept["answer"] == [1.5, 2.5]
