"""Train one small model with sparse weights in several ways, and compare the held-out losses.

    python -m benchmarks.sparsity.accuracy --json benchmarks/results/sparse_accuracy.json

A tendency at small scale beside published ones, not a reproduction: a byte-level GPT of 0.5
million parameters on Python's standard library, ``run.py`` on a local cluster. All arms of a seed
start from the same weights and see the same text; ``--seeds N`` repeats all with others.

``static``, ``set``, ``rigl`` and ``gmp`` train for as many steps as ``dense``. ``static, then
dense`` is sparse pre-training and dense fine-tuning: three quarters of the steps sparse, then as
many dense steps as are left. The trained dense model is pruned at once in two ways: ``magnitude``
sets the smallest weights of each matrix to zero, ``SparseGPT`` those that change its outputs least
on 16 batches of training text, and changes the others to make up for it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from waferstream.cli.main import main as run
from waferstream.config.phases import load_params
from waferstream.core.config import load_yaml
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive
from waferstream.training.checkpoints.pruning import pruned_model
from waferstream.workload.weight_files import write_checkpoint

_PARAMS = Path(__file__).parents[2] / "params.yaml"
_MODEL = {"hidden_size": 128, "num_hidden_layers": 2, "filter_size": 512}
_LENGTH = 64
_CALIBRATION_BATCHES = 16
DYNAMIC = ("set", "rigl", "gmp")


@dataclass(frozen=True)
class Phase:
    """Some steps of training: what is sparse, up to which step, and from which checkpoint.

    With ``one_shot`` the checkpoint is pruned by SparseGPT first, to that share of zeros.
    """

    name: str
    last_step: int
    sparsity: Mapping[str, Any] | None = None
    start: str | None = None
    learning_rate: float = 3e-3
    one_shot: float | None = None
    seed: int = 1


def phases(steps: int, shares: Sequence[float], at_once: Sequence[float] = ()) -> list[Phase]:
    """Return every phase, those that start from others after them.

    Args:
        steps: Those of dense training.
        shares: Shares of zeros of sparse training.
        at_once: Shares of zeros of the dense model that is pruned at once.
    """
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
    for share in at_once:
        largest = {"algorithm": "static", "sparsity": share, "init_method": "topk"}
        # One step without learning, after which weights are evaluated with their mask.
        pruned = Phase(f"magnitude {share:.0%}", steps + 1, largest, "dense", learning_rate=0.0)
        left = {"algorithm": "static", "init_method": "from_zeros"}
        found += [pruned, replace(pruned, name=f"SparseGPT {share:.0%}", last_step=1, sparsity=left,
                                  one_shot=share)]  # fmt: skip
    return found


def held_out_loss(phase: Phase, steps: int, folder: Path) -> float:
    """Train a phase in a folder that all phases share; return its held-out loss.

    Raises:
        WaferStreamError: The run failed.
    """
    params = folder / f"{phase.name}.yaml"
    params.write_text(yaml.safe_dump({"trainer": _trainer(phase, steps)}))
    cluster = folder / "local.yaml"
    cluster.write_text(yaml.safe_dump({"runtime": {"kind": "local"}}))
    flags = [f"--params={params}", f"--cluster={cluster}", f"--model_dir={folder / phase.name}"]
    if phase.start is not None:
        flags += _start(phase, params, folder)
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


def _trainer(phase: Phase, steps: int) -> dict[str, Any]:
    """Return the section of a phase: the default one with a smaller model."""
    trainer: dict[str, Any] = load_yaml(_PARAMS)["trainer"]
    init, fit = trainer["init"], trainer["fit"]
    init["seed"] = phase.seed
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
    fit["train_dataloader"]["shuffle_seed"] = phase.seed
    return {"init": init, "fit": fit}


def _start(phase: Phase, params: Path, folder: Path) -> list[str]:
    """Return the flags that start a phase from the checkpoint of another one, pruned or not."""
    assert phase.start is not None, "checked by the caller"
    (start,) = (folder / phase.start).glob("*.mdl")
    if phase.one_shot is None:
        return [f"--checkpoint_path={start}"]
    model = pruned_model(load_params(params), start, phase.one_shot, _CALIBRATION_BATCHES)
    target = folder / f"{phase.name}.mdl"
    write_checkpoint(target, model.state_dict(), {"global_step": 0})
    return [f"--checkpoint_path={target}", "--load_checkpoint_states=model"]


def _rates(rate: float, steps: int) -> list[dict[str, Any]]:
    """Return twenty rising learning rates, then falling ones."""

    def part(name: str, first: float, last: float, count: int) -> dict[str, Any]:
        ends = {"initial_learning_rate": first, "end_learning_rate": last}
        return {name: ends | {"total_iters": count}}

    falling = part("CosineDecayLR", rate, rate / 10, max(1, steps - 20))
    return [part("LinearLR", rate / 30, rate, 20), falling]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every phase with every seed, print the losses, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--steps", type=positive, default=240, help="steps of dense training")
    parser.add_argument("--seeds", type=positive, default=1, help="number of them, from 1 on")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.9], help="of zeros, trained")
    parser.add_argument(
        "--at_once", type=float, nargs="*", default=[0.5, 0.6, 0.75, 0.9], help="of zeros, pruned"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("How does the loss of a small model depend on how its weights are sparse?")
    result |= {"steps": options.steps, "seeds": options.seeds, "held_out_losses": {}}
    losses: dict[str, list[float]] = result["held_out_losses"]
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            for phase in phases(options.steps, options.shares, options.at_once):
                loss = held_out_loss(replace(phase, seed=seed), options.steps, Path(folder))
                losses.setdefault(phase.name, []).append(loss)
                print(f"seed {seed}, {phase.name}: held-out loss {loss:.3f}", flush=True)
        if options.json is not None:
            write_json(options.json, result)  # what is there if a later seed is interrupted
    print("\n".join(table(losses)))


def table(losses: Mapping[str, Sequence[float]]) -> list[str]:
    """Return a row for each phase: mean, smallest and largest loss over the seeds."""
    rows = ["| held-out loss | mean | smallest | largest |", "|---|---|---|---|"]
    return rows + [
        f"| {name} | {sum(found) / len(found):.3f} | {min(found):.3f} | {max(found):.3f} |"
        for name, found in losses.items()
    ]


if __name__ == "__main__":
    main()
