"""Train, resume and evaluate a checkout of the vendor's gigaGPT, unchanged, at a small size.

    python -m scripts.gigagpt --checkout DIR [--out gigagpt_runs]

The script scales the checkout's smallest configuration down and writes tokens. ``train.py`` runs to
the end on one system; again from its first checkpoint, on two; ``eval.py`` evaluates the result.
The resumed run must end with the weights and moments of the uninterrupted one, bit for bit.
gigaGPT keeps no state of its loader, so all sequences are equal: both runs read the same data. It
lists a generator of its parameters in every step, so it clips in the first step of a run alone, and
the limit of the norm is out of reach. Its requirements must be importable (transformers, tqdm).
Exit codes: 0 all of that was so, 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from scripts.exec_runs import run_exec
from waferstream.checkpoint.reader import Reader

LENGTH, VOCABULARY, SEQUENCES, BATCH_SIZE = 16, 64, 64, 8
STEPS = 6

_SIZES = {
    "width": 32,
    "depth": 2,
    "heads": 2,
    "max_position_embeddings": LENGTH,
    "vocab_size": VOCABULARY,
    "sequence_length": LENGTH,
    "batch_size": BATCH_SIZE,
    "num_steps": STEPS,
    "checkpoint_steps": STEPS // 2,
    "learning_rate": 0.01,
    "warmup_steps": 2,
    "max_gradient_norm": 1e6,
}


@dataclass(frozen=True)
class Outcome:
    """Losses of the runs, none where one failed, and whether both trainings ended equal."""

    losses: tuple[float, ...]
    resumed: tuple[float, ...]
    evaluation: float | None
    are_equal: bool

    @property
    def is_good(self) -> bool:
        """Whether the loss fell and the resumed run is the rest of the uninterrupted one."""
        losses, rest = self.losses, self.losses[STEPS // 2 :]
        has_all = bool(losses) and self.evaluation is not None
        return has_all and losses[-1] < losses[0] and self.resumed == rest and self.are_equal


def main() -> int:
    """Run the programs of the checkout; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("gigagpt_runs"))
    typed = parser.parse_args()
    outcome = train(typed.checkout.resolve(), typed.out.resolve())
    print("losses      ", *outcome.losses)
    print("resumed     ", *outcome.resumed)
    print("evaluation  ", outcome.evaluation)
    print("equal       ", outcome.are_equal)
    return 0 if outcome.is_good else 1


def train(checkout: Path, folder: Path) -> Outcome:
    """Train, resume and evaluate in a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_tokens(folder)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(small_config(checkout, folder)))
    program, first = str(checkout / "train.py"), folder / "whole"
    words = [program, str(config), "--out_dir", str(first)]
    losses = _losses(run_exec(words, folder, "train.log"))
    second = folder / "resumed"
    start = ["--checkpoint_path", str(first / f"checkpoint_{STEPS // 2}.mdl")]
    words = ["--num_csx=2", program, str(config), *start, "--out_dir", str(second)]
    resumed = _losses(run_exec(words, folder, "resume.log"))
    ends = [path / f"checkpoint_{STEPS}.mdl" for path in (first, second)]
    words = [str(checkout / "eval.py"), str(config), "--checkpoint_path", str(ends[1])]
    found = re.search(r"Average eval loss: ([\d.]+)", run_exec(words, folder, "eval.log") or "")
    return Outcome(losses, resumed, float(found[1]) if found else None, have_equal_tensors(*ends))


def small_config(checkout: Path, folder: Path) -> dict[str, object]:
    """Return the smallest configuration of the checkout, scaled down."""
    config = yaml.safe_load((checkout / "configs" / "111m.yaml").read_text())
    return {**config, **_SIZES, "dataset": str(folder), "mount_dirs": [], "python_paths": []}


def write_tokens(folder: Path) -> None:
    """Write equal sequences that rise by 3, for training and for evaluation."""
    tokens = np.tile(3 * np.arange(LENGTH) % VOCABULARY, SEQUENCES + 1)[: SEQUENCES * LENGTH + 1]
    for name in ("train.bin", "val.bin"):
        tokens.astype(np.uint16).tofile(folder / name)


def have_equal_tensors(first: Path, second: Path) -> bool:
    """Return whether two checkpoints exist and have equal weights and optimizer state."""
    if not (first.is_file() and second.is_file()):
        return False
    files = [Reader(path) for path in (first, second)]
    keys = [
        {key for key in file.tensors if key.startswith(("model.", "optimizer."))} for file in files
    ]
    has_both = any(key.startswith("optimizer.") for key in keys[0])
    pairs = ([file[key] for file in files] for key in keys[0])
    return has_both and keys[0] == keys[1] and all(np.array_equal(a, b) for a, b in pairs)


def _losses(output: str | None) -> tuple[float, ...]:
    """Return the losses that a run has logged."""
    return tuple(map(float, re.findall(r"\| Step=\d+, Loss=([\d.]+)", output or "")))


if __name__ == "__main__":
    sys.exit(main())
