"""Measure how fast tokens come: against transformers, without the promise, and over HTTP.

python -m benchmarks.serving --json benchmarks/results/serving.json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.serving import decode, service
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    result = new_result("tokens against transformers, without the promise, and over HTTP")
    result |= {"threads": options.threads, "decoding": []}
    for size in options.sizes:
        found = decode.measure(size, options.users, options.tokens, options.repeats)
        print("\n".join(found.lines()), flush=True)
        result["decoding"].append(asdict(found))
        write_json(options.json, result)
    if options.place:
        added = service.measure(options.place, options.streams, options.tokens, options.repeats)
        print(f"over HTTP, {options.streams} streams: {added}")
        result["over_http"] = {"streams": options.streams, **added}
    write_json(options.json, result)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", type=new_file, required=True, help="where results go")
    parser.add_argument(
        "--sizes", nargs="*", choices=decode.SIZES, default=["110M", "500M"], help="LLaMA models"
    )
    parser.add_argument("--users", nargs="+", type=positive, default=[1, 8], help="at a time")
    parser.add_argument("--tokens", type=positive, default=24, help="tokens of each user")
    parser.add_argument("--repeats", type=positive, default=5, help="trials of each arm")
    parser.add_argument("--threads", type=positive, default=1, help="threads of torch")
    parser.add_argument("--place", type=Path, help="model that is served over HTTP; none otherwise")
    parser.add_argument("--streams", type=positive, default=32, help="over HTTP at a time")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
