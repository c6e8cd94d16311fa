"""Measure the time of simulated curves from 1 to 192 systems, once their steps are captured.

    python -m benchmarks.simulate_curve --json benchmarks/results/simulate_curve.json
    python -m benchmarks.simulate_curve --params modelzoo/params/bert_large.yaml

Capturing a model takes some seconds, whatever its size, and is measured separately; every repeat of
a curve starts with empty caches. The time grows with the number of different micro-batch sizes: a
trillion parameters leave space for one, those of a small model change with every few systems.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import torch

from appliance.spec import ClusterSpec
from waferstream.config.phases import load_params
from waferstream.core.errors import WaferStreamError
from waferstream.core.units import counted
from waferstream.host.files import write_json
from waferstream.machine.cost import layouts_of
from waferstream.machine.kernels.collectives import reduce
from waferstream.machine.kernels.resident import gradient_block
from waferstream.machine.kernels.streaming import service
from waferstream.reports.benchmark import new_file, new_result, positive
from waferstream.scaling.sweep import parse_sweep
from waferstream.simulation.capture import capture_step
from waferstream.simulation.facts import facts_of
from waferstream.simulation.study import study_of
from waferstream.training.setup.backend import make_backend

_PARAMS = Path(__file__).parents[1] / "modelzoo" / "params" / "gpt3_1t.yaml"


@dataclass(frozen=True)
class Measurement:
    """Seconds on this computer.

    ``curve_s`` is the shortest of ``repeats_s``, ``cpu_s`` the processor time of that repeat.
    """

    params: str
    sweep: str
    parameters: int
    segments: int
    micro_batch_sizes: int
    capture_s: float
    curve_s: float
    cpu_s: float
    repeats_s: tuple[float, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("seconds of a simulated curve over cluster sizes, once a step is captured")
    try:
        curves = []
        for params in options.params:
            curves.append(measure(params, options.sweep, options.repeats))
            _print(curves[-1])
        if options.json is not None:
            write_json(options.json, result | {"curves": [asdict(curve) for curve in curves]})
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measure(params_file: Path, sweep: str, repeats: int) -> Measurement:
    """Capture the step of a params file, then compute the curve ``repeats`` times from scratch."""
    counts = parse_sweep(sweep, "--sweep")
    params, cluster = load_params(params_file), ClusterSpec()
    with TemporaryDirectory(prefix="benchmark-") as folder:
        init = params.trainer.init.model_copy(update={"model_dir": Path(folder)})
        trainer = params.trainer.model_copy(update={"init": init})
        params = params.model_copy(update={"trainer": trainer})
        backend = make_backend(params, cluster)
        start_s = perf_counter()
        try:
            captured = capture_step(params, backend)
        finally:
            backend.shutdown()
        capture_s = perf_counter() - start_s
    measured: list[tuple[float, float]] = []
    for _ in range(repeats):
        for cached in (layouts_of, reduce, gradient_block, service):
            cached.cache_clear()
        study = study_of(params, cluster, captured, facts_of(params.trainer), num_servers=1)
        start_s, start_cpu_s = perf_counter(), process_time()
        study.curve(counts)
        measured.append((perf_counter() - start_s, process_time() - start_cpu_s))
    program = study.costed(counts[0]).program
    return Measurement(
        params=params_file.name,
        sweep=sweep,
        parameters=sum(spec.num_elements for spec in program.parameters),
        segments=len(program.segments),
        micro_batch_sizes=len({study.micro_batch_size(count) for count in counts}),
        capture_s=capture_s,
        curve_s=min(measured)[0],
        cpu_s=min(measured)[1],
        repeats_s=tuple(wall_s for wall_s, _ in measured),
    )


def _print(found: Measurement) -> None:
    each = ", ".join(f"{repeat_s:.3f}" for repeat_s in found.repeats_s)
    print(
        f"{found.params}, {found.parameters / 1e9:,.1f} billion parameters: captured in "
        f"{found.capture_s:.1f} s; curve over {found.sweep}, "
        f"{counted(found.micro_batch_sizes, 'micro-batch size')}, in {found.curve_s:.3f} s "
        f"(fastest of {each}), {found.cpu_s:.3f} s of processor time",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--params", type=Path, nargs="+", default=[_PARAMS], help="params files to simulate"
    )
    parser.add_argument("--sweep", default="1-192", help="numbers of systems")
    parser.add_argument("--repeats", type=positive, default=5, help="computations of the curve")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
