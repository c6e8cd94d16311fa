"""Two runs of a program: as plain PyTorch, and with its steps handed over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.programs.program import Edit, Program

HOME = Path(__file__).resolve().parents[2]

TOLERANCE = 2e-4
"""The largest relative distance of two losses: some programs print four digits."""


@dataclass(frozen=True)
class Outcome:
    """The losses of both runs of a program, none where one failed."""

    program: Program
    plain: tuple[float, ...]
    handed_over: tuple[float, ...]

    @property
    def distance(self) -> float:
        """The largest relative distance of two losses."""
        if not self.plain or len(self.plain) != len(self.handed_over):
            return float("inf")
        pairs = zip(self.plain, self.handed_over, strict=True)
        return max(abs(a - b) / max(abs(a), 1e-9) for a, b in pairs)

    @property
    def is_good(self) -> bool:
        """Whether there are losses, which are equal."""
        return self.distance <= TOLERANCE and len(self.program.changed_lines) <= 3


def compare(program: Program, checkouts: Path, out: Path) -> Outcome:
    """Run a program of a checkout both ways, in folders that are made anew."""
    folder = out / re.sub(r"\W+", "_", program.name)
    plain = run(program, checkouts, folder / "plain", (), program.plain)
    there = run(program, checkouts, folder / "there", program.changes, program.handed_over)
    return Outcome(program, plain, there)


def run(
    program: Program,
    checkouts: Path,
    copy: Path,
    edits: Iterable[Edit],
    words: Iterable[str],
) -> tuple[float, ...]:
    """Run a copy of a program with edits and more arguments; return the losses that it prints."""
    shutil.rmtree(copy, ignore_errors=True)
    source = checkouts / program.repository.partition("/")[2]
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    program.prepare(copy)
    for edit in (*program.sizes, *edits):
        apply(copy, edit)
    paths = [HOME, copy, copy / program.folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, *program.runner, str(copy / program.file), *program.words, *words],
        cwd=copy / program.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    copy.with_suffix(".log").write_text(result.stdout)
    if result.returncode:
        return ()
    return tuple(map(float, re.findall(program.loss, result.stdout)))


def apply(copy: Path, edit: Edit) -> None:
    """Replace a text of a file that occurs in it; ValueError if it does not."""
    name, old, new = edit
    text = (copy / name).read_text()
    if old not in text:
        raise ValueError(f"{name} of another version: it has no {old!r}")
    (copy / name).write_text(text.replace(old, new, 1))
