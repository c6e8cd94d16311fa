"""Surroundings of a mistake that are no plain files: other runs, a full disk, another torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TRAIN = (sys.executable, "-m", "waferstream", "train", "params.yaml")
_START_S = 300


@contextmanager
def after_run(folder: Path) -> Iterator[None]:
    """Train the params file before."""
    subprocess.run(_TRAIN, cwd=folder, env=_environment(), check=True, capture_output=True)
    yield


@contextmanager
def beside_run(folder: Path) -> Iterator[None]:
    """Let a run that does not end have the model folder."""
    words = [*_TRAIN, "--max_steps", "1000000"]
    log = folder.parent / f"{folder.name}.log"
    with log.open("w") as output:
        run = subprocess.Popen(
            words, cwd=folder, env=_environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + _START_S
        while "step 1 " not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield
    finally:
        run.kill()
        run.wait()
        log.unlink()


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Mount a disk of 64 KiB, which is full, at ``disk``; it takes the rights of root."""
    with _mounted(folder / "disk", "size=64k") as disk:
        (disk / "full").write_bytes(bytes(64 << 10))
        yield


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk on which a log has room, and a checkpoint has not, at ``disk``."""
    with _mounted(folder / "disk", "size=256k"):
        yield


@contextmanager
def read_only_disk(folder: Path) -> Iterator[None]:
    """Mount a disk that cannot be written to at ``disk``."""
    with _mounted(folder / "disk", "ro"):
        yield


@contextmanager
def pipe(folder: Path) -> Iterator[None]:
    """Make a named pipe, ``pipe``."""
    os.mkfifo(folder / "pipe")
    yield


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
