"""Simulate the params files of a checkout of the vendor's Model Zoo, and train them shrunk.

    python -m scripts.stock_runs --checkout DIR --record FILE [--what WHAT ...] [--only PART ...]

Each file runs in a process of its own, as ``waferstream`` runs it: simulated as it is on one
system, and trained for some steps with ``--shrink``, everything else of the file unchanged. A line
of JSON is added to the record for each run, and a run that the record has is not repeated, so that
the files can be run in parts; the first of every family comes first. A run that needs more
processor time than ``--limit`` seconds is ended, and recorded as such. With a complete record the
command only prints the table: how many runs ended well, and why the others did not.
Exit codes: 0 every run ended well, 1 otherwise.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from scripts.params_files import params_files
from waferstream.cli.main import main as waferstream
from waferstream.reports.run.history import HISTORY_NAME, HistoryFile

SHRINK, STEPS = "600K", 2
_CODE = re.compile(r"\[([a-z-]+)\]$", re.MULTILINE)
_WORDS = {
    "simulate": ("--num_csx", "1", "--simulate"),
    "train": (
        *("--mode", "train", "--num_csx", "1"),
        "--shrink",
        SHRINK,
        "--num_steps",
        str(STEPS),
    ),
}


def run_here(path: Path, what: str) -> dict[str, Any]:
    """Run a params file in this process; return its exit code, its losses and its error."""
    text = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(text), redirect_stderr(text):
        os.chdir(folder)
        Path("cluster.yaml").write_text("runtime: {kind: local}\n")
        code = waferstream(["--params", str(path), *_WORDS[what], "--model_dir", "model_dir"])
        losses = [loss for _, loss in HistoryFile(Path("model_dir", HISTORY_NAME)).curves().train]
    output = text.getvalue()
    error = output[output.find("Error:") :].strip() if code else ""
    return {"code": code, "losses": losses, "error": error}


def run_apart(path: Path, what: str, limit_s: int) -> dict[str, Any]:
    """Run a params file in a process forked from this one.

    What it has imported is imported here, too, so that the next process need not.

    Args:
        path: params file.
        what: kind of run, a key of ``_WORDS``.
        limit_s: seconds of processor time after which the run is ended.
    """
    start = time.monotonic()
    gc.freeze()  # modules stay: a tenth of the time of a run would be looking through them
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        with os.fdopen(writer, "w") as stream:
            json.dump({**run_here(path, what), "modules": [*sys.modules]}, stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    _, status, usage = os.wait4(child, 0)
    found = json.loads(answer) if answer else _death(status, limit_s)
    _import_all(found.pop("modules", []))
    used = {"cpu_s": round(usage.ru_utime + usage.ru_stime, 1), "max_kib": usage.ru_maxrss}
    return {**found, "wall_s": round(time.monotonic() - start, 1), **used}


def _import_all(names: Iterable[str]) -> None:
    """Import modules that can be imported by their name."""
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)


def _death(status: int, limit_s: int) -> dict[str, Any]:
    """Return what a run that has ended without an answer is recorded as."""
    is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}
    error = f"Error: needs more than {limit_s} s [time-limit]" if is_late else "it died"
    return {"code": -1, "losses": [], "error": error}


def families_first(paths: Sequence[Path]) -> list[Path]:
    """Return the first file of every folder, then all others."""
    firsts = {path.parent: path for path in reversed(paths)}
    return list(dict.fromkeys([*reversed(firsts.values()), *paths]))


def recorded(record: Path) -> list[dict[str, Any]]:
    """Return the runs of a record."""
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield how many runs of each kind ended well, and the codes of the others."""
    for what in _WORDS:
        codes = [_code(row) for row in rows if row["what"] == what]
        yield f"{what}: {codes.count(None)} of {len(codes)} files ended well"
        yield from (f"  {number} {code}" for code, number in Counter(filter(None, codes)).items())


def _code(row: dict[str, Any]) -> str | None:
    """Return the code of the error of a run; None if it ended well."""
    if row["code"] == 0:
        return None
    found = _CODE.search(row["error"])
    return found[1] if found else f"exit code {row['code']}"


def main(words: list[str] | None = None) -> int:
    """Run what the record lacks, and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the Model Zoo's params files.")
    parser.add_argument("--checkout", type=Path, required=True, help="checkout of the Model Zoo")
    parser.add_argument("--record", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--what", nargs="+", choices=_WORDS, default=list(_WORDS))
    parser.add_argument("--only", nargs="+", default=[""], help="parts of paths")
    parser.add_argument("--limit", type=int, default=600, help="processor seconds of a run")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    done = {(row["file"], row["what"]) for row in recorded(given.record)}
    for path in families_first(list(params_files(given.checkout.resolve()))):
        name = str(path.relative_to(given.checkout.resolve()))
        for what in given.what:
            if (name, what) in done or not any(part in name for part in given.only):
                continue
            row = {"file": name, "what": what, **run_apart(path, what, given.limit)}
            with given.record.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name}: {what} {_code(row) or row['losses'] or 'ended well'}", flush=True)
    rows = recorded(given.record)
    print("\n".join(table(rows)))
    return 0 if rows and all(row["code"] == 0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
