"""Measure how much faster a cluster trains with sparse products (runtime.engine.sparse_products).

    python -m benchmarks.sparsity.steps --json benchmarks/results/sparse_steps.json

Steps of equal linear layers on two systems in this process, AdamW, all weights with a share of
zeros, in three arms that take turns: dense weights, sparse weights whose zeros a node writes for
dense kernels, and sparse weights that are multiplied from their non-zeros. Ratios are those of one
turn, by elapsed and by processor time; medians with the middle half of the turns. Then a GPT of
15 million parameters on one system, whose matrices are sparse, arm by arm.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks import precision as precision_runs
from benchmarks.precision import PRECISIONS
from benchmarks.sparsity.links import Arm, Ran
from benchmarks.sparsity.model import layer_flags
from csnode.engine.spec import EngineSpec
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

DENSITIES = (0.1, 0.05, 0.02)
BASES = ("dense", "unpacked")
GPT = {"hidden_size": 768, "num_hidden_layers": 2, "num_heads": 12, "filter_size": 3072}


def measure_steps(
    size: tuple[int, int, int], dtype: str, density: float, turns: int
) -> dict[str, Any]:
    """Return the speed of sparse products over both other arms.

    Args:
        size: Width, number of layers, and samples of a step.
        dtype: Type of streams and kernels.
        density: Share of weights that are not zero.
        turns: Steps of each arm.
    """
    arms = {
        "dense": Arm(*size, dtype, 0.0),
        "unpacked": Arm(*size, dtype, 1 - density),
        "products": Arm(*size, dtype, 1 - density, _engine(density)),
    }
    ran: dict[str, list[Ran]] = {name: [] for name in arms}
    order = list(arms)
    for _ in range(turns):
        for name in order:
            ran[name].append(arms[name].run(1))
        order.reverse()  # none is always the first after another
    return {
        "stream_dtype": dtype,
        "density": density,
        "seconds": {name: statistics.median(one.elapsed_s for one in ran[name]) for name in arms},
        **{f"over_{base}": _ratios(ran[base], ran["products"]) for base in BASES},
    }


def measure_gpt(
    precision: str, density: float, steps: int, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the seconds of a step of a GPT in each arm, and its last loss."""
    arms: dict[str, dict[str, Any]] = {
        "dense": {},
        "unpacked": {"sparsity": 1 - density},
        "products": {"sparsity": 1 - density, "engine": _engine(density).model_dump()},
    }
    found: dict[str, Any] = {"precision": precision, "density": density}
    for name, options in arms.items():
        arm = precision_runs.Arm("default", name, PRECISIONS[precision], **options)
        curve = precision_runs.train(arm, steps + 1, 4, 128, {**GPT, **changes})
        found[name] = {"seconds": min(curve.seconds), "loss": curve.losses[-1]}
    return found


def _engine(density: float) -> EngineSpec:
    """Return the engine that multiplies weights of a density sparse; counts are rounded."""
    return EngineSpec(sparse_products=min(1.0, 1.05 * density))


def _ratios(base: Sequence[Ran], products: Sequence[Ran]) -> dict[str, Any]:
    pairs = list(zip(base, products, strict=True))
    elapsed = sorted(one.elapsed_s / other.elapsed_s for one, other in pairs)
    quarter = len(elapsed) // 4
    return {
        "elapsed": statistics.median(elapsed),
        "middle_half": (elapsed[quarter], elapsed[-1 - quarter]),
        "processor": statistics.median(one.cpu_s / other.cpu_s for one, other in pairs),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], parents=[layer_flags(rows=512)]
    )
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--turns", type=positive, default=7, help="steps of each arm")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    logging.getLogger("waferstream").setLevel(logging.WARNING)
    result = new_result("How much faster does a cluster train with sparse products?")
    size = (options.width, options.depth, options.rows)
    result["size"], result["steps"] = size, []
    for dtype in ("float32", "bfloat16"):
        for density in DENSITIES:
            found = measure_steps(size, dtype, density, options.turns)
            result["steps"].append(found)
            texts = (_text(base, found[f"over_{base}"]) for base in BASES)
            print(f"{dtype}, density {density}: {'; '.join(texts)}", flush=True)
    result["gpt"] = []
    for precision in ("fp32", "bf16"):
        arms = measure_gpt(precision, 0.1, 3, {})
        result["gpt"].append(arms)
        seconds = ", ".join(
            f"{name} {arms[name]['seconds']:.2f} s" for name in (*BASES, "products")
        )
        print(f"GPT in {precision}, density 0.1, a step: {seconds}", flush=True)
    if options.json is not None:
        write_json(options.json, result)


def _text(base: str, ratios: dict[str, Any]) -> str:
    low, high = ratios["middle_half"]
    return (
        f"{ratios['elapsed']:.2f} times the steps per second of {base} ({low:.2f} to {high:.2f}; "
        f"by processor time {ratios['processor']:.2f})"
    )


if __name__ == "__main__":
    main()
