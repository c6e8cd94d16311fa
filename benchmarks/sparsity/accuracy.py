"""Train one small model with sparse weights in several ways, and compare the held-out losses.

    python -m benchmarks.sparsity.accuracy --json benchmarks/results/sparse_accuracy.json

A tendency at small scale beside published ones, not a reproduction: a byte-level GPT of 0.5
million parameters on Python's standard library, one seed, ``run.py`` on a local cluster. All arms
start from the same weights and see the same text.

``static``, ``set``, ``rigl`` and ``gmp`` train for as many steps as ``dense``. ``static, then
dense`` is sparse pre-training and dense fine-tuning: three quarters of the steps sparse, then as
many dense steps as are left. ``pruned`` is the trained dense model, of which the smallest weights
of each matrix are set to zero at once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from waferstream.cli.main import main as run
from waferstream.reports.benchmark import new_file, new_result
from wsc.core.config import load_yaml
from wsc.core.errors import WaferStreamError
from wsc.core.files import write_json

_PARAMS = Path(__file__).parents[2] / "params.yaml"
_MODEL = {"hidden_size": 128, "num_hidden_layers": 2, "filter_size": 512}
_LENGTH = 64
DYNAMIC = ("set", "rigl", "gmp")


@dataclass(frozen=True)
class Phase:
    """Some steps of training: what is sparse, up to which step, and from which checkpoint."""

    name: str
    last_step: int
    sparsity: Mapping[str, Any] | None = None
    start: str | None = None
    learning_rate: float = 3e-3


def phases(steps: int, shares: Sequence[float]) -> list[Phase]:
    """Return every phase, those that start from others after them."""
    found = [Phase("dense", steps)]
    for share in shares:
        percent = f"{share:.0%}"
        static = {"algorithm": "static", "sparsity": share, "init_method": "random"}
        found.append(Phase(f"static {percent}", steps, static))
        found += [
            Phase(f"{kind} {percent}", steps, _dynamic(kind, share, steps)) for kind in DYNAMIC
        ]
        first = Phase(f"three quarters static {percent}", 3 * steps // 4, static)
        found += [first, Phase(f"static {percent}, then dense", steps, None, first.name)]
        pruned = static | {"init_method": "topk"}
        found.append(Phase(f"pruned {percent}", steps + 1, pruned, "dense", learning_rate=0.0))
    return found


def held_out_loss(phase: Phase, steps: int, folder: Path) -> float:
    """Train a phase in a folder that all phases share; return its held-out loss.

    Raises:
        WaferStreamError: The run failed.
    """
    params = folder / f"{phase.name}.yaml"
    params.write_text(yaml.safe_dump({"trainer": _trainer(phase, steps, folder)}))
    cluster = folder / "local.yaml"
    cluster.write_text(yaml.safe_dump({"runtime": {"kind": "local"}}))
    flags = [f"--params={params}", f"--cluster={cluster}", f"--model_dir={folder / phase.name}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = run(flags)
    if code:
        raise WaferStreamError("a run failed", code="run-not-completed", value=printed.getvalue())
    summary = json.loads((folder / phase.name / "run_summary.json").read_text())
    return float(summary["eval"][-1][1])


def _dynamic(kind: str, share: float, steps: int) -> dict[str, Any]:
    """Return a mask that changes twenty times in the first three quarters of the steps."""
    stop = 3 * steps // 4
    update = {"freq": max(1, stop // 20), "stop": stop}
    if kind == "gmp":
        rising = {"type": "linear", "init": 0.0, "slope": share / stop}
        return {"algorithm": kind, "schedule": rising, "update": update}
    drop = {"type": "cosine", "init": 0.3, "half_period": stop}
    return {"algorithm": kind, "sparsity": share, "drop_fraction": drop, "update": update}


def _trainer(phase: Phase, steps: int, folder: Path) -> dict[str, Any]:
    """Return the section of a phase: the default one with a smaller model."""
    trainer: dict[str, Any] = load_yaml(_PARAMS)["trainer"]
    init, fit = trainer["init"], trainer["fit"]
    init["model"] |= _MODEL | {"max_position_embeddings": _LENGTH}
    init["schedulers"] = [{"SequentialLR": {"schedulers": _rates(phase.learning_rate, steps)}}]
    init["precision"] = {"enabled": False, "max_gradient_norm": 1.0}
    init["loop"] = {"max_steps": phase.last_step, "eval_frequency": 1.0, "eval_steps": 16}
    init["checkpoint"] = {"steps": phase.last_step}
    init["callbacks"] = []
    if phase.sparsity is not None:
        init["sparsity"] = dict(phase.sparsity)
    for loader in fit.values():
        loader["max_sequence_length"] = _LENGTH
    if phase.start is not None:
        (start,) = (folder / phase.start).glob("*.mdl")
        fit["ckpt_path"] = str(start)
    return {"init": init, "fit": fit}


def _rates(rate: float, steps: int) -> list[dict[str, Any]]:
    """Return twenty rising learning rates, then falling ones."""

    def part(name: str, first: float, last: float, count: int) -> dict[str, Any]:
        ends = {"initial_learning_rate": first, "end_learning_rate": last}
        return {name: ends | {"total_iters": count}}

    falling = part("CosineDecayLR", rate, rate / 10, max(1, steps - 20))
    return [part("LinearLR", rate / 30, rate, 20), falling]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every phase, and write and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=new_file, required=True)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.9], help="of zeros")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("How does the loss of a small model depend on how its weights are sparse?")
    result["steps"], losses = options.steps, {}
    with tempfile.TemporaryDirectory() as folder:
        for phase in phases(options.steps, options.shares):
            losses[phase.name] = held_out_loss(phase, options.steps, Path(folder))
            print(f"{phase.name}: held-out loss {losses[phase.name]:.3f}", flush=True)
    result["held_out_losses"] = losses
    write_json(options.json, result)


if __name__ == "__main__":
    main()
