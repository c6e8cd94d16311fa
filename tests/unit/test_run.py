"""run.py, the file itself: the same command as ``waferstream``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from waferstream.version import VERSION

RUN_PY = Path(__file__).parents[2] / "run.py"


def test_run_py_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(RUN_PY), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"waferstream {VERSION}\n"
