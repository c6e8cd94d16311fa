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
    ],
    ids=["too-large", "twice", "format", "budget"],
)
def test_mistakes_are_answered_at_once(words: list[str], code: str, tmp_path: Path) -> None:
    """No file is read: there is none."""
    with raises(ConfigError, code):
        call(["study", str(tmp_path / "none.yaml"), *words], tmp_path)
