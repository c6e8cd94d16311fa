"""Train a model on several numbers of systems; write the curve as JSON, picture and HTML page.

    python -m scripts.scaling_curve --params params.yaml --num_csx 1,2,4,8 --steps 20 --out scaling

Exit codes: 0 all runs end with the same weights, 1 they do not or something failed, 2 the command
line is wrong. A signal that ends the experiment ends the process, as it does that of run.py.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from appliance.spec import ClusterSpec, load_cluster
from waferstream.config.phases import load_params
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import json_text
from waferstream.host.interrupts import Death, ending, raising
from waferstream.host.terminal import line_width
from waferstream.reports.curve.page import write_curve
from waferstream.reports.curve.result import CurveResult
from waferstream.reports.curve.text import table_text, verdict
from waferstream.scaling.experiment import CURVE_NAME, Experiment, check, measure, run_py
from waferstream.scaling.sweep import parse_sweep

HOME = Path(__file__).resolve().parents[1]
_STANDARD_ERROR = 2


def main() -> int:
    """Run the experiment of the command line; return the exit code."""
    death = Death()
    try:
        with raising():  # a signal also ends the run in progress
            return _exit_code()
    except KeyboardInterrupt as error:
        print(f"\n{ending(error)}.", file=sys.stderr)
        return death.of(error)


def _exit_code() -> int:
    try:
        experiment, with_gpus, prints_json = read_command_line()
        output = _STANDARD_ERROR if prints_json else None
        result = run_experiment(experiment, with_gpus, output)
        page = write_curve(experiment.out, CURVE_NAME, result, command=shlex.join(sys.argv))
    except WaferStreamError as error:
        print(f"\nError: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nError: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    assert result.training is not None
    if prints_json:
        print(json_text(result))
    else:
        print(f"\n{table_text(result, line_width())}\n")
        print(f"{verdict(result.training, len(result.points))}\n{page}")
    return 0 if result.training.weights_sha256 is not None else 1


def run_experiment(
    experiment: Experiment, with_gpus: bool, output: int | None = None
) -> CurveResult:
    """Check the configuration, do all runs, and add GPU clusters if requested."""
    params = load_params(experiment.params)
    check(experiment, params)
    policy = params.trainer.init.micro_batch_policy("train")
    result = measure(experiment, policy, run_py(HOME, output), HOME)
    if not with_gpus:
        return result
    spec = ClusterSpec() if experiment.cluster is None else load_cluster(experiment.cluster)
    # torch takes long to import; wrong arguments are told before
    from waferstream.simulation.capturing import captured_studies  # noqa: PLC0415
    from waferstream.simulation.session import gpus_beside  # noqa: PLC0415

    (study,) = captured_studies(params, [spec], (1,))
    return replace(result, gpus=gpus_beside(study, study.costed(1).program))


def read_command_line() -> tuple[Experiment, bool, bool]:
    """Parse the command line.

    Returns:
        The experiment, whether to compare with GPUs, and whether to print JSON.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--params", type=Path, required=True, help="params file of the run")
    parser.add_argument("--num_csx", required=True, help="numbers of systems: 1,2,4,8 or 1-8:x2")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs and results")
    parser.add_argument("--steps", type=int, help="steps of each run (default: as in params)")
    parser.add_argument("--cluster", type=Path, help="cluster.yaml (default: as run.py finds it)")
    parser.add_argument("--no_gpus", action="store_true", help="leave out GPU clusters")
    parser.add_argument(
        "--json", action="store_true", help="print scaling.json; runs print to standard error"
    )
    typed = parser.parse_args()
    experiment = Experiment(
        params=typed.params,
        num_csx=parse_sweep(typed.num_csx, "--num_csx"),
        out=typed.out,
        steps=typed.steps,
        cluster=typed.cluster,
    )
    return experiment, not typed.no_gpus, typed.json


if __name__ == "__main__":
    sys.exit(main())
