"""The whole comparison on a smaller model: 20 minutes on a quiet host of two cores, or 4.

    python -m benchmarks.streaming.short --json benchmarks/results/streaming_short.json
    python -m benchmarks.streaming.short --quick --json benchmarks/results/streaming_quick.json

Runs ``benchmarks.streaming`` in fp32 with 24 M parameters and 256 tokens per sample, for two batch
sizes, and ``benchmarks.streaming.exposure`` (``..._exposure.json``, and a trace for Perfetto).
``csx2`` over ``csx1c1`` is the strong scaling with one thread per system. ``--quick`` leaves the
larger batch, that scaling and the exposure out, and takes one step in a trial: three pairs of each
of 1, 2, 4 and 8 systems with the best loop in memory, and of one system with DDP and FSDP2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.streaming import __main__ as streaming
from benchmarks.streaming import exposure
from waferstream.reports.benchmark import new_file

_SIZE = {"hidden": 512, "layers": 6, "vocab": 8192, "sequence_length": 256}
MODEL = ("--precision", "fp32", *(word for k, n in _SIZE.items() for word in (f"--{k}", str(n))))
GROUPS = ("best csx1 csx1m2 ddp2 fsdp2", "best csx1c1 csx2 csx4", "best csx8")
"""Arms that are alive together; ``csx1m2`` states a micro-batch instead of ``auto``."""
QUICK_GROUPS = ("best csx1 ddp2 fsdp2", "best csx2 ddp2 fsdp2", "best csx4", "best csx8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status of the first part that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streaming.short",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--json", type=new_file, required=True, help="where results go")
    parser.add_argument("--quick", action="store_true", help="the pairs alone, in 4 minutes")
    options = parser.parse_args(arguments)
    path = options.json
    if options.quick:
        return streaming.main(_words(QUICK_GROUPS, "8", "--steps", "1", "--json", str(path)))
    exposed = path.with_stem(f"{path.stem}_exposure")
    trace = exposed.with_suffix(".trace.json")
    status = streaming.main(_words(GROUPS, "8", "16", "--json", str(path)))
    return status or exposure.main([*MODEL, "--json", str(exposed), "--trace", str(trace)])


def _words(groups: Sequence[str], *words: str) -> list[str]:
    """Return the arguments of ``benchmarks.streaming``; the first words are batch sizes."""
    arms = [word for group in groups for word in ("--arms", *group.split())]
    return [*MODEL, *arms, "--batch_sizes", *words]


if __name__ == "__main__":
    sys.exit(main())
