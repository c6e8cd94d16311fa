"""The scaling experiment: one training run on each of several numbers of systems.

out/
    csx_<N>/          model folder of each run
    scaling.json      the curve (waferstream.reports.curve.result has the schema)
    scaling.png       throughput, and emulated step time by cause
    gpus.png          emulated throughput beside modelled throughput of GPU clusters
    scaling.html      all of it on one page
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.placement.host_memory import why_killed
from waferstream.config.params import Params
from waferstream.core.config import load_yaml
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.reports.curve.result import CurveResult
from waferstream.reports.curve.runs import curve_of_runs
from waferstream.reports.host import git_commit
from waferstream.reports.run.summary import SUMMARY_NAME, RunSummary

CURVE_NAME = "scaling"

Run = Callable[[Sequence[str]], int]
"""Calls ``run.py`` with these arguments; returns its exit code."""


@dataclass(frozen=True)
class Experiment:
    """The runs of an experiment; None leaves a choice to ``run.py``."""

    params: Path
    num_csx: tuple[int, ...]
    out: Path
    steps: int | None = None
    cluster: Path | None = None

    def model_dir(self, num_csx: int) -> Path:
        """Return the folder of one run."""
        return self.out / f"csx_{num_csx}"

    def arguments(self, num_csx: int) -> list[str]:
        """Return the arguments of ``run.py`` for one run."""
        flags = {
            "--params": self.params,
            "--num_csx": num_csx,
            "--model_dir": self.model_dir(num_csx),
            "--mode": "train",
            "--num_steps": self.steps,
            "--cluster": self.cluster,
        }
        return [f"{flag}={value}" for flag, value in flags.items() if value is not None]

    def configuration(self) -> dict[str, Any]:
        """Return the files and numbers that define the experiment, as plain data."""
        return {
            "num_csx": self.num_csx,
            "steps": self.steps,
            "params": load_yaml(self.params),
            "cluster": None if self.cluster is None else load_yaml(self.cluster),
        }


def check(experiment: Experiment, params: Params) -> None:
    """Check before the first run that every number of systems can share the batch.

    Raises:
        ConfigError: The params file does not train, or a number of systems is too large.
    """
    fit = params.trainer.fit
    if fit is None:
        raise ConfigError(
            "the params file must have a section trainer.fit",
            code="experiment-without-training",
            where="trainer.fit",
            value="missing",
            rule="a scaling experiment trains",
        )
    policy = params.trainer.init.micro_batch_policy("train")
    for num_csx in experiment.num_csx:
        policy.check(fit.train_dataloader.batch_size, num_csx)


def measure(experiment: Experiment, policy: MicroBatchPolicy, run: Run, home: Path) -> CurveResult:
    """Do all runs, fewest systems first, and return their curve.

    Args:
        experiment: The runs to do.
        policy: Micro-batch policy of their params file.
        run: Calls ``run.py``.
        home: The source tree whose commit the result names.

    Raises:
        ConfigError: A file cannot be read or a run folder exists; no run was started.
        WaferStreamError: A run failed; later runs were not started.
    """
    configuration = experiment.configuration()
    for num_csx in experiment.num_csx:
        _check_is_new(experiment.model_dir(num_csx))
    runs = [_measure_one(experiment, run, num_csx) for num_csx in experiment.num_csx]
    return curve_of_runs(runs, policy.label, git_commit(home), configuration)


def _check_is_new(model_dir: Path) -> None:
    # a run continues from the checkpoints that it finds, so it would train other steps
    if model_dir.exists():
        raise ConfigError(
            "the folder of a run must not exist",
            code="run-folder-exists",
            where="--out",
            value=model_dir,
            rule="every run of an experiment starts without a checkpoint",
            remedy="remove the folder or choose another --out",
        )


def _measure_one(experiment: Experiment, run: Run, num_csx: int) -> RunSummary:
    model_dir = experiment.model_dir(num_csx)
    exit_code = run(experiment.arguments(num_csx))
    if exit_code != 0:
        raise WaferStreamError(
            f"the run with num_csx={num_csx} failed",
            code="run-failed",
            where=str(model_dir),
            value=_described(exit_code),
            remedy="see the error message of the run above",
        )
    path = model_dir / SUMMARY_NAME
    try:
        return RunSummary.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise WaferStreamError(
            "the summary of a run cannot be read",
            code="run-summary-unreadable",
            where=str(path),
            value=error,
        ) from error


def _described(exit_code: int) -> str:
    """Return an exit code in words; a process ended by a signal has minus its number."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    reason = f": {why_killed()}" if -exit_code == signal.SIGKILL else ""
    return f"ended by {signal.Signals(-exit_code).name}{reason}"


def run_py(home: Path, output: int | None = None) -> Run:
    """Return a function that calls ``home/run.py`` in a process, and ends it on interruption.

    Args:
        home: The source tree.
        output: File descriptor for what runs print on standard output; that itself by default.
    """

    def run(arguments: Sequence[str]) -> int:
        command = [sys.executable, str(home / "run.py"), *arguments]
        # a process group of its own: Ctrl-C reaches it once, from here, while it closes its cluster
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, process_group=0
        ) as process:
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                process.wait()
                raise

    return run
