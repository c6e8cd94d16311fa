"""Compare micro-batches that params files of the vendor's Model Zoo state with those that fit here.

    python -m scripts.stock_files --checkout DIR [--only PART ...]

A file states the samples of a micro-batch as ``csx.performance.micro_batch_size``, or beside its
``batch_size``: ``# 264 global = (264 micro)*(1 csx)*(1 grad accum step)``. Each such file is
simulated with that size on a CS-2 and on a CS-3, overflow allowed, and a line is printed:

    stated, systems     samples that the file states, and on how many systems
    largest             samples that fit
    fill_wafer, auto    samples that these policies take, of the sizes ceil(share / k)
    samples/s           at the stated size
    verdict             whether the stated size fits
    near                policies whose size is the stated one, or next to it

Exit codes: 0 some file states a size, 1 none does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from appliance.spec import ClusterSpec
from scripts.params_files import params_files
from waferstream.cli.arguments import parse_arguments
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.core.errors import WaferStreamError
from waferstream.core.program.micro_batches import (
    FILL_WAFER,
    MicroBatchPolicy,
    SizeRange,
    closest_size,
    explored_sizes,
    share_of,
)
from waferstream.machine.hardware import CS2, CS3, MachineSpec
from waferstream.scaling.sweep import SimulationRequest
from waferstream.simulation.capturing import captured_studies
from waferstream.simulation.study import Study

_COMMENT = re.compile(r"#.*\((\d+) micro\)\*\((\w+)")
_REQUEST = SimulationRequest(allows_overflow=True)
_POLICIES = (FILL_WAFER, MicroBatchPolicy("auto"))
_HEADER = (
    "machine", "stated", "systems", "largest", *(policy.name for policy in _POLICIES), "samples/s",
    "verdict", "near", "file",
)  # fmt: skip


@dataclass(frozen=True)
class Stated:
    """Samples of a micro-batch that a params file states, and on how many systems."""

    micro_batch_size: int
    num_csx: int


def stated_size(params: Params, text: str) -> Stated | None:
    """Return what a file states by its key or by its comment; None if it states no size."""
    init = params.trainer.init
    requested, comment = init.micro_batch_policy("train").requested, _COMMENT.search(text)
    num_csx = init.backend.cluster_config.num_csx
    if isinstance(requested, int):
        return Stated(requested, num_csx)
    if comment is None:
        return None
    systems = comment[2]
    return Stated(int(comment[1]), int(systems) if systems.isdecimal() else num_csx)


def is_near(batch_size: int, num_csx: int, stated: int, taken: int) -> bool:
    """Tell whether two sizes are equal or neighbours among those that cut a system's share."""
    sizes = explored_sizes(batch_size, SizeRange(), num_csx)
    closest = closest_size(share_of(batch_size, num_csx), stated)
    return abs(sizes.index(closest) - sizes.index(taken)) <= 1


def compared(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield a row for each machine; none for a file that states no size."""
    with TemporaryDirectory() as folder:
        words = ["--params", str(path), "--model_dir", folder, "--compile_dir", folder]
        params = load_params(path, parse_arguments(words, Path(folder)).overrides())
        stated = stated_size(params, path.read_text(encoding="utf-8"))
        if stated is None:
            return
        clusters = [ClusterSpec(machine=MachineSpec(system=wafer)) for wafer in (CS2, CS3)]
        for study in captured_studies(params, clusters, (stated.num_csx,), _REQUEST):
            yield _row(study, stated)


def _row(study: Study, stated: Stated) -> tuple[str, ...]:
    size, num_csx = stated.micro_batch_size, stated.num_csx
    largest, batch = study.simulator.largest_micro_batch, study.batch(num_csx)
    taken = {policy.name: policy.size(batch, num_csx, largest) for policy in _POLICIES}
    near = [name for name, other in taken.items() if is_near(batch, num_csx, size, other)]
    (point,) = replace(study, policy=MicroBatchPolicy(size)).curve((num_csx,))
    assert point.prediction is not None
    return (
        study.simulator.machine.system.name,
        *map(str, (size, num_csx, largest, *taken.values())),
        f"{point.emulated.samples_per_s:.4g}",
        "fits" if point.prediction.overflow is None else "too large",
        " ".join(near) or "none",
    )


def main(words: Sequence[str] | None = None) -> int:
    """Print a line for each file with a stated size on each machine; return the exit code."""
    parser = argparse.ArgumentParser(description="Compare stated micro-batches with those here.")
    parser.add_argument("--checkout", type=Path, required=True, help="checkout of the Model Zoo")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of paths, in this order")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    paths = list(params_files(given.checkout))
    chosen = dict.fromkeys(path for part in given.only for path in paths if part in str(path))
    rows: list[tuple[str, ...]] = []
    print("\t".join(_HEADER))
    for path in chosen:
        for row in _rows(path):
            rows.append(row)
            print("\t".join((*row, str(path.relative_to(given.checkout)))), flush=True)
    met = sum("fits" in row and row[-1] != "none" for row in rows)
    print(f"{met} of {len(rows)} stated sizes fit, and are near that of a policy")
    return 0 if rows else 1


def _rows(path: Path) -> list[tuple[str, ...]]:
    """Return the rows of a file, or one with the error that it ends with."""
    try:
        return list(compared(path))
    except WaferStreamError as error:
        return [(f"{error.what} [{error.code}]",)]


if __name__ == "__main__":
    sys.exit(main())
