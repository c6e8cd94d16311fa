"""A folder that a tiny training of a decoder of bytes has left, to serve."""

from __future__ import annotations

from pathlib import Path

from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main

CONTEXT = 96
"""More than a block of the cache."""


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
