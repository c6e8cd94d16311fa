"""Measure how long a run takes to its first step and to its end, and a simulation in all.

    python -m benchmarks.start_up --json benchmarks/results/start_up.json
    python -m benchmarks.start_up --num_csx 64 --params benchmarks/tiny.yaml --simulate

Each run trains three steps of a params file on four systems on Ray, as a command of its own. The
first run fills the compile cache; the others find the program there. A run takes 10 s on two idle
cores. Processor time, which other work on the host changes little, is that of the command and of
all processes below it. Each simulation of ``--simulate`` is a command of its own, too: the first
captures the step, the others know the file.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.processes import busy_below
from waferstream.core.events import Milestone
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_HOME = Path(__file__).parents[1]
_LARGE = ("gpt3_1.3b.yaml", "llama2_70b.yaml")
_PHASES = {
    Milestone.COMPILING: "imported",
    Milestone.STARTING: "compiled",
    Milestone.STARTED: "roles started",
    Milestone.RUNNING: "installed",
    "Step=1,": "first step",
    Milestone.TRAINED: "trained",
}
"""Name of the phase that a line of the run's output ends, by words in the line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--repeats", type=positive, default=5, help="runs with a warm cache")
    parser.add_argument("--num_csx", type=positive, default=4, help="systems")
    parser.add_argument(
        "--simulate",
        type=Path,
        nargs="*",
        default=[_HOME / "params.yaml", *(_HOME / "modelzoo" / "params" / f for f in _LARGE)],
        help="files to simulate",
    )
    parser.add_argument("--params", type=Path, default=_HOME / "params.yaml", help="what it trains")
    parser.add_argument("--json", type=new_file, help="file for the result")
    options = parser.parse_args(arguments)
    result = new_result("seconds, and processor seconds, from the command to each phase's end")
    with TemporaryDirectory(prefix="benchmark-") as folder:
        simulations = {
            file.name: [_simulate(Path(folder), file) for _ in range(options.repeats + 1)]
            for file in options.simulate
        }
        start = partial(_run, Path(folder), options.params, options.num_csx)
        runs = [start() for _ in range(options.repeats + 1)]
    warm, busy = zip(*(run["first step"] for run in runs[1:]), strict=True)
    print(
        f"first step after {median(warm):.1f} s ({min(warm):.1f} to {max(warm):.1f} s), "
        f"{median(busy):.1f} s of processor time ({min(busy):.1f} to {max(busy):.1f} s)"
    )
    if options.json is not None:
        measured = {
            "num_csx": options.num_csx,
            "params": options.params.name,
            "runs": runs,
            "simulations": simulations,
        }
        write_json(options.json, result | measured)
    return 0


def _run(folder: Path, params: Path, num_csx: int) -> dict[str, tuple[float, float]]:
    """Train three steps; return seconds and processor seconds at the end of each phase."""
    words = ["--params", str(params), "--num_csx", str(num_csx), "--max_steps", "3"]
    words += ["--log", "vendor"]
    with TemporaryDirectory(dir=folder) as model_dir:
        cache = ["--model_dir", model_dir, "--compile_dir", str(folder / "cache")]
        begin = perf_counter()
        command = [sys.executable, "-u", str(_HOME / "run.py"), *words, *cache]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None, "it is a pipe"
            ends: dict[str, tuple[float, float]] = {}
            for line in process.stdout:
                for phase in [phase for marker, phase in _PHASES.items() if marker in line]:
                    ends.setdefault(phase, (perf_counter() - begin, _busy_s(process.pid)))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    parts = (f"{phase} {at:.1f} ({busy:.1f} busy)" for phase, (at, busy) in ends.items())
    print(", ".join(parts), flush=True)
    return ends


def _simulate(folder: Path, params: Path) -> tuple[float, float]:
    """Simulate 1, 2 and 4 systems; return seconds and processor seconds."""
    words = ["--params", str(params), "--simulate", "--num_csx", "4"]
    with TemporaryDirectory(dir=folder) as model_dir:
        cache = ["--model_dir", model_dir, "--compile_dir", str(folder / "cache")]
        begin, before_s = perf_counter(), _children_s()
        command = [sys.executable, str(_HOME / "run.py"), *words, *cache]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = perf_counter() - begin, _children_s() - before_s
    print(f"{params.name}: simulated after {found[0]:.1f} s ({found[1]:.2f} busy)", flush=True)
    return found


def _children_s() -> float:
    """Return the processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_s(root: int) -> float:
    """Return the processor time so far of a process and all processes below it."""
    return sum(process.busy_s for process in busy_below(root))


if __name__ == "__main__":
    sys.exit(main())
