"""Measure what the ops of a step cost: products, which are the floor, and everything else.

    python -m benchmarks.streaming.profile --precision fp32 --hidden 512 --layers 6 --vocab 8192 \\
        --sequence_length 256 --micro_batch 1 --json FILE

The kernels of a system run one after the other on one thread, in processor time. Those that are
compiled call their loops outside of torch, so the loops are what remains of the whole.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.streaming.workload import Precision, Workload, workload_flags, workload_of
from scripts.reference_kernels import Segments
from scripts.reference_loop import streamed
from waferstream.core.program.micro_batches import Cut
from waferstream.host.files import write_json
from waferstream.numerics.precision import StreamPrecision
from waferstream.reports.benchmark import new_file, new_result, positive

_CAUSES: Mapping[str, tuple[str, ...]] = {
    "products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": ("_scaled_dot_product",),
    "sums": ("sum", "mean", "native_layer_norm", "_log_softmax", "nll_loss"),
    "lookups": ("embedding",),
}
"""Names with which ops begin, by cause; all others are ``elementwise``: also copies and views."""

_DTYPES: Mapping[Precision, tuple[str, str]] = {
    "fp32": ("float32", "float32"),
    "bf16": ("bfloat16", "bfloat16"),
    "bf16-stream": ("bfloat16", "float32"),
}
"""Types of the stream and of kernels."""


class _Timing(TorchDispatchMode):
    """Adds up the processor time of ops by cause."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds: dict[str, float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start_s = thread_time()
        result = func(*args, **(kwargs or {}))
        self.seconds[_cause(func)] += thread_time() - start_s
        return result


def _cause(op: Any) -> str:
    name = op._schema.name.removeprefix("aten::")
    for cause, beginnings in _CAUSES.items():
        if name.startswith(beginnings):
            return cause
    return "elementwise"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    workload = replace(workload_of(options, options.batch_size), micro_batch=options.micro_batch)
    result = new_result("processor time of the kernels of a micro-batch by cause, on one thread")
    result |= {"workload": asdict(workload), "milliseconds": profile(workload, options.repeats)}
    for kernels, causes in result["milliseconds"].items():
        parts = ", ".join(f"{cause} {ms:.1f}" for cause, ms in causes.items())
        print(f"{kernels}: {parts} ms", flush=True)
    if options.json is not None:
        write_json(options.json, result)
    return 0


def profile(workload: Workload, repeats: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of a micro-batch by cause, with eager and with compiled kernels.

    Each cause is the least of ``repeats``; ``whole`` is the least without looking at ops.
    """
    model, batch = workload.model(), workload.source().batch(0)
    precision = StreamPrecision(*_DTYPES[workload.precision])
    weights = {name: streamed(master, precision) for name, master in model.named_parameters()}
    size = workload.micro_batch_size
    rows = {name: tensor[:size] for name, tensor in batch.items()}
    found = {}
    with TemporaryDirectory(prefix="benchmark-") as folder:
        for kernels in ("eager", "compiled"):
            segments = Segments(
                *(model, batch, Cut.of(workload.batch_size, size), precision, 0, Path(folder)),
                is_compiled=kernels == "compiled",
            )

            def run(segments: Segments = segments) -> float:
                start_s = thread_time()
                for _ in segments.gradients(weights, rows, 1, 0, 1.0, 1.0):
                    pass
                return thread_time() - start_s

            run()
            causes: dict[str, float] = {}
            for _ in range(repeats):
                with _Timing() as timing:
                    run()
                for cause, seconds in timing.seconds.items():
                    causes[cause] = min(seconds, causes.get(cause, seconds))
            whole = min(run() for _ in range(repeats))
            found[kernels] = {c: 1000 * s for c, s in sorted(causes.items())}
            found[kernels]["whole"] = 1000 * whole
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        parents=[workload_flags()],
        prog="python -m benchmarks.streaming.profile",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    measurement = parser.add_argument_group("measurement")
    measurement.add_argument("--batch_size", type=positive, default=8)
    measurement.add_argument("--micro_batch", type=positive, help="samples of a micro-batch")
    measurement.add_argument("--repeats", type=positive, default=5)
    measurement.add_argument("--json", type=new_file, help="where results go")
    return parser


if __name__ == "__main__":
    sys.exit(main())
