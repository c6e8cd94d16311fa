"""Run programs of a checkout through ``waferstream exec``, as users do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]


def run_exec(words: Sequence[str], folder: Path, log: str, path: Path | None = None) -> str | None:
    """Run ``waferstream exec`` on a local cluster; return its output, None if it failed.

    Args:
        words: What follows ``exec``.
        folder: The working folder; cluster.yaml is written there.
        log: The file in ``folder`` that takes standard output and error.
        path: A folder from which the program imports, besides its own.
    """
    (folder / "cluster.yaml").write_text("runtime: {kind: local}\n")
    paths = [str(HOME), *([str(path)] if path else []), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-m", "waferstream", "exec", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / log).write_text(result.stdout + result.stderr)
    return result.stdout + result.stderr if result.returncode == 0 else None
