"""The scaling experiment: one training on several numbers of systems, run after run.

out/
    csx_<N>/          the model folder of each run
    scaling.json      every number, with host, commit and configuration
    scaling.png       pace, and where an emulated step goes
    gpus.png          the same pace beside that of GPU clusters, which is modelled
    scaling.html      all of it as one page
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from waferstream.config.params import Params
from waferstream.reports.gpu_picture import PaceCurve, gpu_picture
from waferstream.reports.host import git_commit
from waferstream.reports.scaling import Scaling
from waferstream.reports.scaling_picture import scaling_picture
from waferstream.reports.summary import SUMMARY_NAME, RunSummary
from waferstream.scaling.gpus import WAYS, GpuComparison
from waferstream.scaling.page import Comparison, page
from waferstream.scaling.report import title
from wsc.core.config import load_yaml
from wsc.core.errors import ConfigError, WaferStreamError
from wsc.core.files import replacing, write_json

Run = Callable[[Sequence[str]], int]
"""Does one run of ``run.py`` with these arguments; returns its exit code."""


@dataclass(frozen=True)
class Experiment:
    """What to run; None leaves a choice to ``run.py``."""

    params: Path
    num_csx: tuple[int, ...]
    out: Path
    steps: int | None = None
    cluster: Path | None = None

    def model_dir(self, num_csx: int) -> Path:
        """The folder of one run."""
        return self.out / f"csx_{num_csx}"

    def arguments(self, num_csx: int) -> list[str]:
        """What ``run.py`` is called with for one run."""
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
        """The files and numbers that define the experiment, as plain data."""
        return {
            "num_csx": self.num_csx,
            "steps": self.steps,
            "params": load_yaml(self.params),
            "cluster": None if self.cluster is None else load_yaml(self.cluster),
        }


def check(experiment: Experiment, params: Params) -> None:
    """ConfigError if a number of systems cannot share the batch, before runs on fewer train."""
    fit = params.trainer.fit
    if fit is None:
        raise ConfigError(
            "the scaling experiment trains", where="trainer.fit", value="not in the params file"
        )
    policy = params.trainer.init.micro_batch_policy("train")
    for num_csx in experiment.num_csx:
        policy.check(fit.train_dataloader.batch_size, num_csx)


def measure(experiment: Experiment, run: Run) -> Scaling:
    """Do the runs, fewest systems first.

    Raises ConfigError before the first run if a file cannot be read or a folder has been used,
    WaferStreamError at the first run that fails.
    """
    experiment.configuration()
    for num_csx in experiment.num_csx:
        _require_fresh(experiment.model_dir(num_csx))
    return Scaling.of([_measure_one(experiment, run, count) for count in experiment.num_csx])


def _require_fresh(model_dir: Path) -> None:
    """A run continues from the checkpoints it finds, and would not train the same steps."""
    if model_dir.exists():
        raise ConfigError(
            "the folder of a run exists",
            where="--out",
            value=model_dir,
            rule="every run of an experiment starts afresh",
            remedy="remove the folder or choose another --out",
        )


def _measure_one(experiment: Experiment, run: Run, num_csx: int) -> RunSummary:
    model_dir = experiment.model_dir(num_csx)
    exit_code = run(experiment.arguments(num_csx))
    if exit_code != 0:
        raise WaferStreamError(
            f"the run with num_csx={num_csx} failed",
            where=str(model_dir),
            value=f"exit code {exit_code}",
            remedy="its own message stands above",
        )
    path = model_dir / SUMMARY_NAME
    try:
        return RunSummary.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise WaferStreamError(
            "a run left no readable summary", where=str(path), value=error
        ) from error


def run_py(home: Path) -> Run:
    """Runs ``home/run.py`` in a process of its own, and ends that before an interruption goes on.

    The process has its own group, so that Ctrl-C reaches it once, from here, and it can close its
    cluster undisturbed.
    """

    def run(arguments: Sequence[str]) -> int:
        command = [sys.executable, str(home / "run.py"), *arguments]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0) as process:
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                process.wait()
                raise

    return run


def write_results(
    experiment: Experiment, scaling: Scaling, home: Path, gpus: GpuComparison | None = None
) -> Path:
    """Write JSON, pictures and page to ``experiment.out``; returns the page's path.

    ``home`` is the source tree whose commit is noted; ``gpus`` is what to compare with.
    """
    commit = git_commit(home)
    run = scaling.run
    write_json(
        experiment.out / "scaling.json",
        {
            "version": run.version,
            "commit": commit,
            "host": asdict(scaling.points[0].measured.host),
            "configuration": experiment.configuration(),
            "system": run.system,
            "model": asdict(run.model),
            "batch_size": run.batch_size,
            "micro_batch_size": run.micro_batch_size,
            "first_step": run.first_step,
            "last_step": run.last_step,
            "one_answer": scaling.weights_sha256 is not None,
            "runs": [point.to_json() for point in scaling.points],
            "gpus": gpus,
        },
    )
    picture = experiment.out / "scaling.png"
    scaling_picture(picture, scaling, title(scaling))
    target = experiment.out / "scaling.html"
    with replacing(target) as partial:
        beside = None if gpus is None else _beside_gpus(experiment, scaling, gpus)
        text = page(scaling, commit, picture.read_bytes(), beside)
        partial.write_text(text, encoding="utf-8")
    return target


def _beside_gpus(experiment: Experiment, scaling: Scaling, gpus: GpuComparison) -> Comparison:
    """Draw the comparison, if there is something to compare with."""
    if not gpus.curves:
        return Comparison(gpus.note)
    ours = PaceCurve(
        f"{scaling.run.system}, emulated",
        "",
        [point.num_csx for point in scaling.points],
        [point.emulated.samples_per_s for point in scaling.points],
    )
    theirs = [
        PaceCurve(
            curve.gpu,
            WAYS[curve.kind],
            [point.gpus for point in curve.fitting],
            [point.samples_per_s for point in curve.fitting],
        )
        for curve in gpus.curves
    ]
    path = experiment.out / "gpus.png"
    gpu_picture(path, title(scaling), gpus.note, ours, theirs)
    return Comparison(gpus.note, path.read_bytes())
