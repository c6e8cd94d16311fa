"""run.py, the file itself."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

RUN_PY = Path(__file__).parents[2] / "run.py"


class Interrupting(ModuleType):
    """A module whose import the user interrupts."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_while_it_starts_is_an_end_like_others(monkeypatch) -> None:
    """Exit code 130 and no stack trace, also in the second before main() is there."""
    monkeypatch.setitem(sys.modules, "waferstream.cli.main", Interrupting("waferstream.cli.main"))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(RUN_PY), run_name="__main__")
    assert ended.value.code == 130
