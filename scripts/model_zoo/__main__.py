"""Train models of a checkout of the vendor's Model Zoo with its own trainer, at small sizes.

    python -m scripts.model_zoo --checkout DIR [--family gpt2 ...] [--out model_zoo_runs]

For each family the script scales one of the checkout's own params files down, writes a small data
set, runs ``waferstream exec -m cerebras.modelzoo.cli.main fit`` for a few steps, and again to
resume from the last checkpoint. Optimizer and precision are those of the file. The Model Zoo's
requirements must be importable: transformers 4, and pydantic 2.8 in place of the newer one that
pyproject.toml asks for.
Exit codes: 0 every run ended and its loss fell, 1 otherwise.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.exec_runs import run_exec
from scripts.model_zoo.families import FAMILIES, small_params
from waferstream.core.events import TrainProgress


@dataclass(frozen=True)
class Outcome:
    """The losses of a run and of its continuation; None where the run failed."""

    first: float | None
    last: float | None
    resumed: float | None
    checkpoint: str | None

    @property
    def is_good(self) -> bool:
        """Whether both runs have ended, and the loss of the first fell."""
        if self.first is None or self.last is None or self.resumed is None:
            return False
        return self.last < self.first


def main() -> int:
    """Run the families of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=Path("model_zoo_runs"))
    typed = parser.parse_args()
    print(f"{'family':10} {'first':>8} {'last':>8} {'resumed':>8}  checkpoint")
    outcomes = []
    for family in typed.family:
        outcome = train(typed.checkout.resolve(), family, typed.out.resolve() / family)
        numbers = (outcome.first, outcome.last, outcome.resumed)
        shown = " ".join("  failed" if x is None else f"{x:8.4f}" for x in numbers)
        print(f"{family:10} {shown}  {outcome.checkpoint}", flush=True)
        outcomes.append(outcome)
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def train(checkout: Path, family: str, folder: Path) -> Outcome:
    """Train a family in a folder that is made anew, and resume it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    params = small_params(checkout, family, folder)
    steps = FAMILIES[family].steps
    losses = [run(checkout, folder, params, steps)]
    losses.append(run(checkout, folder, params, steps // 2) if losses[0] else [])
    saved = sorted((folder / "model_dir").glob("*.mdl"), key=lambda path: path.stat().st_mtime)
    return Outcome(
        first=losses[0][0] if losses[0] else None,
        last=losses[0][-1] if losses[0] else None,
        resumed=losses[1][-1] if losses[1] else None,
        checkpoint=saved[-1].name if saved else None,
    )


def run(checkout: Path, folder: Path, params: dict[str, Any], steps: int) -> list[float]:
    """Train some steps, from the last checkpoint if there is one; return the losses, or none."""
    init = params["trainer"]["init"]
    init["loop"] = {"num_steps": steps, "eval_frequency": steps, "eval_steps": 2}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump(params))
    words = ["-m", "cerebras.modelzoo.cli.main", "fit", str(file)]
    output = run_exec(words, folder, f"{steps}_steps.log", checkout / "src")
    return [float(found["loss"]) for found in TrainProgress.PATTERN.finditer(output or "")]


if __name__ == "__main__":
    sys.exit(main())
