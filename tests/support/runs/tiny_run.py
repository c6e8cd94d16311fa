"""``run.py`` as a user starts it, on a run small enough for a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from tests.support.runs.tiny_training import GPT, shared_compiles
from waferstream.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "Weights SHA-256: "

TINY = {
    "trainer": {
        "init": {
            "model": GPT | {"vocab_size": 256, "max_position_embeddings": 16},
            "optimizer": {"AdamW": {"lr": 0.01, "weight_decay": 0.1}},
            "precision": {"precision_opt_level": 0, "max_gradient_norm": 1.0},
            "loop": {"max_steps": 8, "eval_frequency": 4, "eval_steps": 2},
            "checkpoint": {"steps": 2},
            "logging": {"log_steps": 2},
        },
        "fit": {
            "train_dataloader": {
                "data_processor": "TextDataProcessor",
                "path": "text.txt",  # in the run's folder
                "batch_size": 8,
                "max_sequence_length": 16,
            },
            "val_dataloader": {
                "data_processor": "TextDataProcessor",
                "path": "text.txt",  # in the run's folder
                "split": "eval",
                "batch_size": 8,
                "max_sequence_length": 16,
                "shuffle": False,
            },
        },
    }
}

_PICTURES = (
    "waferstream.training.results.files.loss_picture",
    "waferstream.reports.curve.picture.curve_picture",
    "waferstream.reports.machine.wafer_picture.wafer_picture",
)


def write_run(
    folder: Path, *, kind: str = "local", compiles: bool = False, **changes: Any
) -> list[str]:
    """Write the files of a tiny run; return its flags.

    Args:
        folder: The folder of the run.
        kind: The kind of cluster.
        compiles: Whether the run compiles in its own folder, and does not take what an earlier run
            of this test session has compiled.
        changes: Dotted keys of trainer.init (``__``).
    """
    params = yaml.safe_load(yaml.safe_dump(TINY))
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        section = params["trainer"]
        for key in path:
            section = section.setdefault(key, {})
        section[last] = value
    params["trainer"]["init"]["logging"].setdefault("words", "vendor")
    if not compiles and shared_compiles() is not None:
        backend = params["trainer"]["init"].setdefault("backend", {})
        backend.setdefault("compile_dir", str(shared_compiles()))
    for loader in params["trainer"]["fit"].values():
        if "path" in loader:
            loader["path"] = str(folder / loader["path"])
    (folder / "text.txt").write_bytes(bytes(i * i * 31 % 251 for i in range(20_000)))
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"runtime": {"kind": kind}}))
    return [
        f"--params={folder / 'params.yaml'}",
        f"--cluster={folder / 'cluster.yaml'}",
        f"--model_dir={folder / 'model_dir'}",
    ]


def run_here(
    flags: list[str], capsys: pytest.CaptureFixture[str], *, draws: bool = False
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error of a run in this process.

    Unless it ``draws``, a file has what a picture would show: to draw losses takes almost half of
    the time of a tiny run, to draw a simulation most of its time.
    """
    with ExitStack() as stack:
        for picture in () if draws else _PICTURES:
            stack.enter_context(patch(picture, _note_picture))
        code = main(flags, home=Path(flags[0].removeprefix("--params=")).parent)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def _note_picture(path: Path, *shown: object) -> None:
    path.write_text(repr(shown))


@contextmanager
def start(flags: list[str]) -> Iterator[subprocess.Popen[str]]:
    """``run.py`` with these flags; ended when the block is left, if it still runs."""
    with subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a test may signal the whole process group
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=60)


def finish(flags: list[str]) -> tuple[int, str, str]:
    """Run to the end: exit code, standard output, standard error."""
    with start(flags) as process:
        out, err = process.communicate(timeout=110)
    return process.returncode, out, err


def digest_of(out: str) -> str:
    """The hash on the last line of a run's output."""
    last = out.splitlines()[-1]
    assert last.startswith(DIGEST), out
    return last.removeprefix(DIGEST)
