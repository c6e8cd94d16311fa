"""Small jobs: what they train, what they are when they run alone, and when their first step is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

NUM_CSX = 2
"""Systems that a job asks for; it starts on one."""

FIRST_STEP = b"Step=1,"
_WORDS = ("--params=params.yaml", "--mode=train")


@dataclass(frozen=True)
class SmallJob:
    """A tiny GPT in a folder of its own.

    Attributes:
        folder: The folder.
        seed: Of its weights: jobs of other seeds end with other hashes.
        num_steps: Steps of training.
    """

    folder: Path
    seed: int
    num_steps: int

    @property
    def words(self) -> tuple[str, ...]:
        """What follows ``waferstream`` on the command line."""
        return _WORDS

    def write(self) -> None:
        """Write its files."""
        self.folder.mkdir(parents=True)
        text = bytes(i * i * 31 % 251 for i in range(20_000))
        (self.folder / "text.txt").write_bytes(text)
        (self.folder / "params.yaml").write_text(yaml.safe_dump(self._params))
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump({"runtime": {"kind": "local"}}))

    @cached_property
    def _params(self) -> Mapping[str, Any]:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2, "filter_size": 64}
        text = {"vocab_size": 256, "max_position_embeddings": 16}
        data = {"path": "text.txt", "batch_size": 8, "max_sequence_length": 16}
        init = {
            "seed": self.seed,
            "model": {"name": "gpt2", **sizes, **text},
            "optimizer": {"AdamW": {"lr": 0.01}},
            "precision": {"precision_opt_level": 0},
            "loop": {"max_steps": self.num_steps},
            "logging": {"log_steps": 1},
        }
        loader = {"data_processor": "TextDataProcessor", **data}
        return {"trainer": {"init": init, "fit": {"train_dataloader": loader}}}


@dataclass(frozen=True)
class Alone:
    """A job that runs alone, in a process of its user: its hash, and seconds to its first step."""

    weights_sha256: str
    first_step_s: float


def run_alone(job: SmallJob) -> Alone:
    """Run a job without a management; RuntimeError if it fails."""
    first_step_s = seconds_to_first_step(job, ())
    summary = json.loads((job.folder / "model_dir" / "run_summary.json").read_text())
    return Alone(str(summary["weights_sha256"]), first_step_s)


def seconds_to_first_step(
    job: SmallJob, flags: Sequence[str], env: Mapping[str, str] | None = None
) -> float:
    """Run a job to its end; return the seconds from the command to the line of its first step."""
    words = (*job.words, f"--num_csx={NUM_CSX}", *flags)
    started_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "waferstream", *words],
        cwd=job.folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None, "it is a pipe"
        first_step_s, text = _first_step(process.stdout, started_s)
    if process.returncode or first_step_s is None:
        raise RuntimeError(text.decode(errors="replace")[-4000:])
    return first_step_s


def _first_step(lines: Iterable[bytes], started_s: float) -> tuple[float | None, bytes]:
    """Read all that a run prints; return when its first step was there, and the text."""
    first_step_s, text = None, b""
    for line in lines:
        text += line
        if first_step_s is None and FIRST_STEP in line:
            first_step_s = time.monotonic() - started_s
    return first_step_s, text
