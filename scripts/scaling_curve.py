"""The scaling curve: one training on several numbers of systems, as JSON, picture and page.

    python scripts/scaling_curve.py --params params.yaml --num_csx 1,2,4,8 --steps 20 --out scaling

Exit codes: 0 all runs end with the same weights, 1 they do not or something failed, 2 the command
line is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from waferstream.config.params import load_params
from waferstream.scaling.experiment import Experiment, check, measure, run_py, write_results
from waferstream.scaling.gpus import compare_with_gpus
from waferstream.scaling.report import table, verdict
from waferstream.scaling.sweep import parse_sweep
from wsc.core.errors import WaferStreamError

HOME = Path(__file__).resolve().parents[1]
INTERRUPTED = 130


def main() -> int:
    """Run the experiment of the command line; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the run under way, too
    try:
        experiment, with_gpus = read_command_line()
        params = load_params(experiment.params)  # what is wrong is told before any run
        check(experiment, params)
        scaling = measure(experiment, run_py(HOME))
        gpus = compare_with_gpus(params, scaling.run.model.parameters) if with_gpus else None
        page = write_results(experiment, scaling, HOME, gpus)
    except WaferStreamError as error:
        print(f"\nError: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nError: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    print(f"\n{table(scaling)}\n\n{verdict(scaling)}\n{page}")
    return 0 if scaling.weights_sha256 is not None else 1


def read_command_line() -> tuple[Experiment, bool]:
    """The experiment that the command line describes, and whether to compare with GPUs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--params", type=Path, required=True, help="what to train")
    parser.add_argument("--num_csx", required=True, help="numbers of systems: 1,2,4,8 or 1-8:x2")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs and results")
    parser.add_argument("--steps", type=int, help="steps of each run (default: as in params)")
    parser.add_argument("--cluster", type=Path, help="the machine (default: as run.py finds it)")
    parser.add_argument("--no_gpus", action="store_true", help="do not compare with GPU clusters")
    typed = parser.parse_args()
    experiment = Experiment(
        params=typed.params,
        num_csx=parse_sweep(typed.num_csx, "--num_csx"),
        out=typed.out,
        steps=typed.steps,
        cluster=typed.cluster,
    )
    return experiment, not typed.no_gpus


if __name__ == "__main__":
    sys.exit(main())
