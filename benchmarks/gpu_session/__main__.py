"""Measure everything that ten minutes on a host with a GPU can tell, without a network.

    python -m benchmarks.gpu_session --minutes 10 --json gpu.json
    python -m benchmarks.gpu_session --device cpu --small --json small.json      # anywhere

Parts run in order of value (benchmarks.gpu_session.parts), each in a process of its own and with a
time limit: its share of the time that is left, so that a part that ends early leaves more to the
others. One that fails or hangs ends alone; its error is kept beside the figures it had by then. The
file is written anew every few seconds: a cut loses no figure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from benchmarks.gpu_session.parts import PARTS
from benchmarks.gpu_session.settings import Settings
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

Status = Literal["passed", "failed", "cut", "running", "not begun"]

PROGRAM = (sys.executable, "-m", "benchmarks.gpu_session.parts")
"""The command of a part, without its arguments."""

_ROOT = Path(__file__).parents[2]
_ERROR_CHARACTERS = 6000
_NOTE_S = 3.0  # between two looks at what a part has found
_LEAST_S = 5.0  # a part that would have less does not begin


@dataclass(frozen=True)
class Outcome:
    """How a part ended: ``cut`` at its limit; ``running`` is left where the session was cut."""

    status: Status = "not begun"
    seconds: float = 0.0
    limit_s: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def run_part(
    name: str,
    settings: Settings,
    limit_s: float,
    folder: Path,
    note: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Run a part in a process group of its own, which ends with it.

    Args:
        name: The part.
        settings: What it measures.
        limit_s: Seconds after which it is cut.
        folder: Where it writes.
        note: Takes what it has found so far, every few seconds.
    """
    figures, log = folder / f"{name}.json", folder / f"{name}.log"
    words = [*PROGRAM, name, json.dumps(asdict(settings)), str(figures)]
    start_s = time.monotonic()

    def outcome(status: Status) -> Outcome:
        found = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
        has_error = status in ("failed", "cut")
        error = log.read_text("utf-8", "replace")[-_ERROR_CHARACTERS:] if has_error else None
        return Outcome(status, time.monotonic() - start_s, limit_s, found, error)

    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=_ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while (code := _ended(process, start_s + limit_s)) is None:
                if time.monotonic() >= start_s + limit_s:
                    break
                note(outcome("running"))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return outcome("cut" if code is None else "failed" if code else "passed")


def _ended(process: subprocess.Popen[bytes], until_s: float) -> int | None:
    """Wait a while for a process, but no longer than to a moment; return its status if it ended."""
    try:
        return process.wait(max(0.0, min(_NOTE_S, until_s - time.monotonic())))
    except subprocess.TimeoutExpired:
        return None


def run_session(
    names: Sequence[str], settings: Settings, minutes: float, path: Path
) -> dict[str, Outcome]:
    """Run parts within so many minutes; the file has all outcomes so far at every moment."""
    result = {**new_result("what a GPU does with streamed weights"), "settings": asdict(settings)}
    outcomes = {name: Outcome() for name in names}
    end_s = time.monotonic() + 60 * minutes

    def write(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        write_json(path, {**result, "parts": {n: asdict(each) for n, each in outcomes.items()}})

    with TemporaryDirectory(prefix="gpu-session-") as folder:
        for place, name in enumerate(names):
            left_s = end_s - time.monotonic()
            share = PARTS[name].seconds / sum(PARTS[each].seconds for each in names[place:])
            if left_s * share < _LEAST_S:
                write(name, Outcome())
                break
            note = partial(write, name)
            note(run_part(name, settings, left_s * share, Path(folder), note))
            print(f"{name}: {outcomes[name].status}, {outcomes[name].seconds:.0f} s", flush=True)
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a session; return the exit status: 0 if every part has passed."""
    options = _parser().parse_args(arguments)
    settings = Settings(options.device, options.small, options.beyond_gib)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the part that runs, too
    try:
        outcomes = run_session(options.parts, settings, options.minutes, options.json)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0 if all(each.status == "passed" for each in outcomes.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_session",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", type=new_file, required=True, help="where results go")
    parser.add_argument("--minutes", type=float, default=10.0, help="time of all parts together")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, in this process")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--beyond_gib",
        type=positive,
        default=40,
        help="memory of the GPU that torch may take for the model beyond it",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
