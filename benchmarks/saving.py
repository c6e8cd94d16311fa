"""Measure how long checkpoints keep a training waiting, at once and in the background.

    python -m benchmarks.saving --json benchmarks/results/saving.json

A server with AdamW updates all its parameters once a step, and computes nothing in between but a
product of matrices that takes as long as ``--step_s``. Each arm takes the same steps with a
checkpoint every ``--every`` steps; blocked time is what saving and copying take on the thread that
trains. The wait for the last checkpoint, after the training, is stated apart. Arms take turns, so
that the load of the host meets all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from memoryx.optim.rule import rule_named
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.parts import read_parts, remove_parts
from waferstream.checkpoint.writer import reserve_tensors
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import TensorSpec
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_ADAMW = {**dict(rule_named("AdamW").Arguments()), "lr": 1e-3}
_SERVER = "wgt-0"


class _Training:
    """A weight server whose parameters are updated, without a cluster around it."""

    def __init__(self, num_tensors: int, num_elements: int, step_s: float) -> None:
        specs = [TensorSpec(f"w{i}", (num_elements,), "float32") for i in range(num_tensors)]
        self._store = WeightStore(specs)
        groups = (ParamGroup(tuple(spec.name for spec in specs), _ADAMW),)
        self._store.train_with(OptimizerSpec("AdamW", groups))
        self._gradients = {spec.name: torch.ones(num_elements) for spec in specs}
        self._matrix = torch.rand(512, 512)
        self._step_s = step_s
        self._persistence = Persistence(self._store, _SERVER)
        self._begun: list[Path] = []

    def run(self, folder: Path, steps: int, every: int, arm: str) -> dict[str, float]:
        """Train; return seconds of the steps, of waits among them, and of the wait at the end."""
        saving_s, start_s = 0.0, time.perf_counter()
        for step in range(1, steps + 1):
            self._step(step)
            if arm != "none" and step % every == 0:
                save_s = time.perf_counter()
                self._save(folder / f"{arm}_{step}.mdl", is_background=arm == "background")
                saving_s += time.perf_counter() - save_s
        trained_s = time.perf_counter()
        self._persistence.finish_saving()
        end_s = time.perf_counter()
        copying_s = self._clear()
        return {
            "s": trained_s - start_s,
            "blocked_s": saving_s + copying_s,
            "copying_s": copying_s,
            "end_s": end_s - trained_s,
        }

    def _step(self, step: int) -> None:
        """Compute for the time of a step; update one parameter after the other at its end."""
        end_s = time.perf_counter() + self._step_s
        while time.perf_counter() < end_s:
            self._matrix = (self._matrix @ self._matrix).sigmoid_()
        for name, gradient in self._gradients.items():
            self._store.update({name: gradient}, step)

    def _save(self, path: Path, is_background: bool) -> None:
        offsets = reserve_tensors(path, self._persistence.layout(list(CLUSTER_STATES)))
        self._persistence.save(path, offsets, is_background)
        self._begun.append(path)
        if not is_background:
            self._persistence.finish_saving()

    def _clear(self) -> float:
        """Remove all checkpoints; return the seconds that updates have spent on copies."""
        copying_s = 0.0
        for path in self._begun:
            (part,) = read_parts(path, [_SERVER])
            copying_s += part.copying_s
            remove_parts(path, [_SERVER])
            path.unlink()
        self._begun.clear()
        return copying_s


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its JSON."""
    given = _parse(argv)
    result = new_result("How long do checkpoints keep a training waiting?")
    torch.set_num_threads(1)
    training = _Training(given.tensors, given.elements, given.step_s)
    rounds: list[dict[str, dict[str, float]]] = []
    with TemporaryDirectory() as folder:
        for arm in ("at once", "background"):  # warm up; memory for copies is kept from then on
            training.run(Path(folder), 2, 1, arm)
        for _ in range(given.rounds):
            rounds.append(
                {
                    arm: training.run(Path(folder), given.steps, given.every, arm)
                    for arm in ("none", "at once", "background")
                }
            )
    arms = {
        arm: {
            "blocked_percent": [100 * r[arm]["blocked_s"] / r[arm]["s"] for r in rounds],
            "copying_percent": [100 * r[arm]["copying_s"] / r[arm]["s"] for r in rounds],
            "end_percent": [100 * r[arm]["end_s"] / r[arm]["s"] for r in rounds],
            "slower_percent": [100 * (r[arm]["s"] / r["none"]["s"] - 1) for r in rounds],
        }
        for arm in ("at once", "background")
    }
    for arm, values in arms.items():
        medians = {name: statistics.median(v) for name, v in values.items()}
        print(f"{arm}: " + ", ".join(f"{name} {value:.2f}" for name, value in medians.items()))
    if given.json:
        options = {name: value for name, value in vars(given).items() if name != "json"}
        write_json(given.json, {**result, "options": options, "arms": arms})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--tensors", type=positive, default=64, help="parameters (default: 64)")
    parser.add_argument("--elements", type=positive, default=500_000, help="elements of each")
    parser.add_argument("--step_s", type=float, default=0.5, help="seconds of a step")
    parser.add_argument("--steps", type=positive, default=20, help="steps of a round")
    parser.add_argument("--every", type=positive, default=10, help="steps between checkpoints")
    parser.add_argument(
        "--rounds", type=positive, default=3, help="rounds of all arms (default: 3)"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
