"""An explorer of the tiny run; its steps are captured once for all tests of a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.runs.tiny_run import write_run
from waferstream.explorer.explorer import Explorer


@cache
def tiny_explorer() -> Explorer:
    with TemporaryDirectory() as folder:
        write_run(Path(folder))
        return Explorer.of_files(Path(folder) / "params.yaml", None)
