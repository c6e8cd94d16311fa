"""A folder that a tiny training of a decoder of bytes has left, and a service of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.runs.tiny_run import ROOT, write_run
from waferstream.cli.main import main

CONTEXT = 160
"""More than a block of tokens by which beginnings are shared."""

WAIT_S = 120
"""The longest that a service may take to end."""


LOCAL = "http://127.0.0.1"
"""Where a client in this process asks: other names are refused without accounts."""


def train_decoder(folder: Path) -> Path:
    """Train two steps; return the folder of the model."""
    flags = write_run(
        folder,
        init__model__max_position_embeddings=CONTEXT,
        init__loop__max_steps=2,
        init__loop__eval_frequency=None,
    )
    assert main(flags, home=folder) == 0
    return folder / "model_dir"


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[str]:
    """Serve a folder in a process of its own, which ends by SIGTERM; give its address."""
    words = [sys.executable, "-m", "waferstream", "serve", str(folder), "--port", "0", *flags]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Serving model_dir at http://127.0.0.1:")
        yield line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == -signal.SIGTERM
        process.communicate()
