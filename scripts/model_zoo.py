"""Train models of a checkout of the vendor's Model Zoo with its own trainer, at small sizes.

    python -m scripts.model_zoo --checkout DIR [--family gpt2 ...] [--out model_zoo_runs]

For each family the script scales one of the checkout's own params files down, writes a small data
set, runs ``waferstream exec -m cerebras.modelzoo.cli.main fit`` for six steps, and again to resume
from the last checkpoint. The Model Zoo's requirements must be importable, pydantic 2.8 among them.
Exit codes: 0 every run ended and its loss fell, 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml

HOME = Path(__file__).resolve().parents[1]
LENGTH, VOCABULARY, SEQUENCES = 16, 64, 64

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "filter_size": 64,
    "max_position_embeddings": LENGTH,
    "vocab_size": VOCABULARY,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt3/configs/Cerebras_GPT/111m.yaml", {"name": "gpt2", "loss_weight": 1 / LENGTH}),
    "gpt3": ("gpt3/configs/Cerebras_GPT/111m.yaml", {"loss_weight": 1 / LENGTH}),
    "gptj": ("gptj/configs/params_gptj_6B.yaml", {"rotary_dim": 8}),
    "llama": (
        "llama/configs/params_llama3p2_1b_msl_8k.yaml",
        {
            "rotary_dim": 8,
            "extra_attention_params": {"num_kv_groups": 2},
            "pos_scaling_extra_args": {
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": LENGTH,
            },
        },
    ),
    "mixtral": ("mixtral/configs/params_moe_111M_base.yaml", {}),
}
"""Params file below ``models/nlp``, and keys of the model besides SIZES, by family."""


@dataclass(frozen=True)
class Outcome:
    """The losses of a run and of its continuation; None where the run failed."""

    first: float | None
    last: float | None
    resumed: float | None
    checkpoint: str | None

    @property
    def is_good(self) -> bool:
        return None not in (self.first, self.last, self.resumed) and self.last < self.first  # type: ignore[operator]


def main() -> int:
    """Run the families of the command line; returns the exit code."""
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
    (folder / "cluster.yaml").write_text("runtime: {kind: local}\n")
    write_tokens(folder / "data" / "tokens.h5")
    params = small_params(checkout, family, folder)
    losses = [run(checkout, folder, params, steps) for steps in (6, 3)]
    saved = sorted((folder / "model_dir").glob("*.mdl"))
    return Outcome(
        first=losses[0][0] if losses[0] else None,
        last=losses[0][-1] if losses[0] else None,
        resumed=losses[1][-1] if losses[1] else None,
        checkpoint=saved[-1].name if saved else None,
    )


def small_params(checkout: Path, family: str, folder: Path) -> dict[str, Any]:
    """Return the family's params file, scaled down."""
    name, model = FAMILIES[family]
    source = checkout / "src" / "cerebras" / "modelzoo" / "models" / "nlp" / name
    params: dict[str, Any] = yaml.safe_load(source.read_text())
    trainer = params["trainer"]
    init = trainer["init"]
    init["model"].update({**SIZES, **model})
    init["precision"].update(fp16_type="bfloat16", loss_scaling_factor=1.0, precision_opt_level=0)
    # A step cannot return what is computed from gradients: MemoryX has their sums.
    init |= {
        "backend": {"backend_type": "CSX"},
        "callbacks": [{"ComputeNorm": None}],
        "checkpoint": {"steps": 3},
        "logging": {"log_steps": 1},
        "model_dir": str(folder / "model_dir"),
        "schedulers": [{"ConstantLR": {"learning_rate": 0.01}}],
        "seed": 1,
    }
    loader = {
        "data_processor": "GptHDF5DataProcessor",
        "data_dir": str(folder / "data"),
        "batch_size": 8,
        "shuffle": False,
    }
    trainer["fit"] = {"train_dataloader": loader, "val_dataloader": dict(loader)}
    for section in ("validate", "validate_all"):
        trainer.pop(section, None)
    return params


def write_tokens(path: Path) -> None:
    """Write sequences that rise by 3: a model learns them in a few steps."""
    path.parent.mkdir()
    start = np.arange(SEQUENCES)[:, None] * 7
    tokens = (start + 3 * np.arange(LENGTH + 1)) % VOCABULARY
    rows = [tokens[:, :-1], np.ones((SEQUENCES, LENGTH)), tokens[:, 1:]]
    with h5py.File(path, "w") as file:
        file["data"] = np.stack(rows, axis=1).astype(np.int32)
        file.attrs["n_examples"] = SEQUENCES


def run(checkout: Path, folder: Path, params: dict[str, Any], steps: int) -> list[float]:
    """Train some steps, from the last checkpoint if there is one; returns the losses, or none."""
    init = params["trainer"]["init"]
    init["loop"] = {"num_steps": steps, "eval_frequency": 3, "eval_steps": 2}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump(params))
    paths = [str(HOME), str(checkout / "src"), os.environ.get("PYTHONPATH", "")]
    words = ["-m", "waferstream", "exec", "-m", "cerebras.modelzoo.cli.main", "fit"]
    result = subprocess.run(
        [sys.executable, *words, str(file)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / f"{steps}_steps.log").write_text(result.stdout + result.stderr)
    if result.returncode != 0:
        return []
    return [float(loss) for loss in re.findall(r"\| Train .*?Loss=([\d.]+)", result.stdout)]


if __name__ == "__main__":
    sys.exit(main())
