"""Compare closed forms with counted cycles, for every kernel of a model on the simulated wafer.

    python -m benchmarks.engine_cycles --rows 32 --columns 32

captures the training step of params.yaml, and runs each different kernel of one micro-batch once on
the simulator of the fabric (runtime.engine: wafer-cycles).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from appliance.spec import ClusterSpec
from csnode.engine.calls import KernelCall, calls_of
from csnode.engine.closed_forms import counted_cycles, kernel_cycles, region_grid
from waferstream.config.overrides import INIT, Override
from waferstream.config.phases import load_params
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive
from waferstream.simulation.capture import capture_step
from waferstream.training.setup.backend import make_backend

_PARAMS = Path(__file__).parents[1] / "params.yaml"
_DTYPE = "float32"
"""Type of the operands: params.yaml computes in fp32."""


def kernels(path: Path, micro_batch_size: int) -> list[KernelCall]:
    """Return the different kernels of the array in a training step."""
    with tempfile.TemporaryDirectory() as folder:
        params = load_params(path, (Override("model_dir", (*INIT, "model_dir"), folder, "set"),))
        backend = make_backend(params, ClusterSpec())
        try:
            program = capture_step(params, backend).program.at(micro_batch_size, 1)
        finally:
            backend.shutdown()
    calls = (
        call._replace(times=1)
        for segment in program.segments
        for work in segment.work
        for call in calls_of(work, _DTYPE)
    )
    return list(dict.fromkeys(calls))


def main(argv: Sequence[str] | None = None) -> None:
    """Print and write the cycles of each kernel, and the errors by kind."""
    given = _parse(argv)
    grid = region_grid(given.rows, given.columns)
    errors: dict[str, list[float]] = defaultdict(list)
    rows = []
    for call in kernels(given.params, given.micro_batch_size):
        closed_form = kernel_cycles(grid, call).total_cycles
        counted = counted_cycles(given.rows, given.columns, call)
        error = closed_form / counted - 1
        errors[call.kernel].append(abs(error))
        rows.append({**call._asdict(), "closed_form": closed_form, "counted": counted})
        print(f"{call.kernel:17} {call.shape!s:20} {closed_form:>9.0f} {counted:>9} {error:+.2%}")
    for kernel, found in errors.items():
        print(f"{kernel:17} {len(found)} shapes, mean {mean(found):.2%}, largest {max(found):.2%}")
    if given.json:
        result = new_result("how far are closed forms from counted cycles, kernel by kernel?")
        write_json(given.json, {**result, "region": [given.rows, given.columns], "kernels": rows})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--params", type=Path, default=_PARAMS, help="the model")
    parser.add_argument("--micro_batch_size", type=positive, default=2, help="samples (default: 2)")
    parser.add_argument("--rows", type=positive, default=32, help="rows of PEs (default: 32)")
    parser.add_argument("--columns", type=positive, default=32, help="PEs of a row (default: 32)")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
