"""Measure how long a step takes from a params file to a schedule, and how long from the cache.

    python -m benchmarks.large_model --json benchmarks/results/large_model.json

Every start is a process of its own and compiles only. Time counts from the end of the imports to
the log line of the phase: ``created`` when the model exists and its step is about to be recorded,
``compiled`` when the program is scheduled. Each params file is started twice with one compile
cache, so that the second start finds what the first one has written.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.core.errors import WaferStreamError
from waferstream.core.events import Milestone, StepCompiled
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result
from waferstream.training.session import run_session

_ZOO = Path(__file__).parents[1] / "modelzoo" / "params"
_PARAMS = [
    _ZOO.parents[1] / "params.yaml",
    _ZOO / "gpt2_small.yaml",
    _ZOO / "llama2_70b.yaml",
]
_PHASES = {
    Milestone.COMPILING: "created",
    "Found existing cached compile": "found",
    StepCompiled.TEXT: "compiled",
}
"""Name of the phase that a log line ends, by the line's first words."""


class _Phases(logging.Handler):
    """The seconds, of the clock and of the processor, at the end of each phase."""

    def __init__(self) -> None:
        super().__init__()
        self._start = perf_counter(), process_time()
        self.ends: dict[str, dict[str, float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        for words, phase in _PHASES.items():
            if record.getMessage().startswith(words):
                start_s, start_cpu_s = self._start
                cpu_s = process_time() - start_cpu_s
                self.ends[phase] = {"s": perf_counter() - start_s, "cpu_s": cpu_s}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.folder is not None:
        return _start(options.params[0], options.folder)
    result = new_result("seconds from the end of the imports to a scheduled step")
    models = []
    for params in options.params:
        with TemporaryDirectory(prefix="benchmark-") as folder:
            starts = [_start_apart(params, Path(folder) / name) for name in ("first", "second")]
        models.append({"params": params.name, "starts": starts})
        for number, start in enumerate(starts, start=1):
            _print(params, number, start)
    if options.json is not None:
        write_json(options.json, result | {"models": models})
    return 0


def _start_apart(params: Path, folder: Path) -> dict[str, Any]:
    """Start a process that compiles; return what it has measured."""
    words = ["--params", str(params), "--folder", str(folder)]
    command = [sys.executable, "-m", "benchmarks.large_model", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _start(params: Path, folder: Path) -> int:
    """Compile in this process; print a JSON object with the end of each phase and peak bytes."""
    phases, log = _Phases(), logging.getLogger("waferstream")
    level = log.level
    log.addHandler(phases)
    log.setLevel(logging.INFO)
    try:
        run_session(_compiling(load_params(params), folder), "train")
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        log.removeHandler(phases)
        log.setLevel(level)
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    is_hit = phases.ends.pop("found", None) is not None
    print(json.dumps({**phases.ends, "is_cache_hit": is_hit, "peak_bytes": peak_bytes}))
    return 0


def _compiling(params: Params, folder: Path) -> Params:
    """Return params that compile only, with a compile cache beside their folder."""
    init = params.trainer.init
    options = {"compile_only": True, "compile_dir": folder.with_name("compile_cache")}
    backend = init.backend.model_copy(update=options)
    init = init.model_copy(update={"model_dir": folder, "backend": backend})
    trainer = params.trainer.model_copy(update={"init": init})
    return params.model_copy(update={"trainer": trainer})


def _print(params: Path, number: int, start: dict[str, Any]) -> None:
    found = "found in the cache" if start["is_cache_hit"] else "compiled"
    created, compiled = start["created"], start["compiled"]
    print(
        f"{params.name}, start {number}: created in {created['s']:.1f} s, {found} in "
        f"{compiled['s']:.1f} s ({compiled['cpu_s']:.1f} s of processor time), peak "
        f"{start['peak_bytes'] / 1e9:.1f} GB",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--params", type=Path, nargs="+", default=_PARAMS, help="params files")
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of one start
    return parser


if __name__ == "__main__":
    sys.exit(main())
