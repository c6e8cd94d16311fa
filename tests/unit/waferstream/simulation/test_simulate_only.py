"""What simulates does without the packages of training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.runs.tiny_run import ROOT, write_run

SIMULATES = (
    "waferstream.cli.tools.compare",
    "waferstream.cli.tools.explore",
    "waferstream.cli.tools.study",
    "waferstream.explorer.explorer",
    "waferstream.explorer.export",
    "waferstream.simulation.planning",
    "waferstream.simulation.wafer_trace",
    "waferstream.studies.running",
    "waferstream.studies.search",
)

PROGRAM = """
import sys
from importlib import import_module
from waferstream.core.extras import TRAINING
sys.modules.update(dict.fromkeys(TRAINING))  # to import one fails as if it were not installed
for name in {modules}:
    import_module(name)
from waferstream.cli.entry import run
sys.exit(run())
"""


def _without_training(
    folder: Path, *words: str, modules: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Import modules, then run a command."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(modules=modules), *words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_simulation_needs_no_package_of_training(tmp_path: Path) -> None:
    done = _without_training(tmp_path, *write_run(tmp_path), "--simulate", modules=SIMULATES)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model_dir" / "simulation" / "simulation.html").is_file()


@pytest.mark.parametrize("words", [(), ("--runtime.kind", "ray")], ids=["local", "ray"])
def test_training_says_what_to_install(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = _without_training(tmp_path, *write_run(tmp_path), *words)
    assert done.returncode == 1
    assert "[extra-not-installed]" in done.stderr
    assert "pip install 'waferstream[train]'" in done.stderr
