"""The command of studies tells its grid, and refuses what it cannot write, before torch is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.cli.app import call
from waferstream.core.errors import ConfigError

FILE = "modelzoo/params/gpt2_small.yaml"


def test_size_is_told_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = [FILE, "--over", "scaling=strong,weak", "--over", "num_csx=1-64:x2", "--tell"]
    assert call(["study", *words], Path()) == 0
    assert capsys.readouterr().err == "Study: 2 scaling x 7 num_csx = 14 points.\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--over", "batch_size=1-10000000"], "study-too-large"),
        (["--over", "num_csx=1", "--over", "num_csx=2"], "duplicate-key"),
        (["--out", "rows.xlsx"], "unknown-format"),
        (["--token_budget", "0"], "token-budget-out-of-range"),
        (["--out", "none/rows.csv"], "folder-missing"),
        (["--out", "."], "unknown-format"),
        (["--over", "num_csx"], "study-values-invalid"),
        (["--token_budget", "many"], "wrong-type"),
    ],
    ids=[
        "too-large",
        "twice",
        "format",
        "budget",
        "no-folder",
        "a-folder",
        "no-values",
        "no-number",
    ],
)
def test_mistakes_are_answered_at_once(words: list[str], code: str, tmp_path: Path) -> None:
    """No file is read: there is none."""
    with raises(ConfigError, code):
        call(["study", str(tmp_path / "none.yaml"), *words], tmp_path)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--batch_size", "1-100000000"], "search-too-large"),
        (["--batch_size", "64,many,128"], "out-of-range"),
        (["--most_days", "nan"], "out-of-range"),
        (["--most_usd=-1"], "out-of-range"),
    ],
    ids=["too-large", "batch", "nan", "negative"],
)
def test_mistakes_of_a_search_are_answered_at_once(words: list[str], code: str) -> None:
    with raises(ConfigError, code):
        call(["search", FILE, "--budget", "1B", *words], Path())


def test_study_reads_the_machine_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a simulation does, so that both predict the same."""
    (tmp_path / "cluster.yaml").write_text("machine: {system: CS-9}\n")
    file = Path(FILE).absolute()
    monkeypatch.chdir(tmp_path)
    with raises(ConfigError, "unknown-system"):
        call(["study", f"{file}", "--over", "num_csx=1,2"], tmp_path)
