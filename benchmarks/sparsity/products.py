"""Measure where sparse products on the CPU are faster than the dense kernels of torch.

    python -m benchmarks.sparsity.products --json benchmarks/results/sparse_products.json

One thread, a weight whose zeros lie at random places. The three products of a linear layer:
outputs, gradients of inputs, gradients of weights; dense, and as nodes compute them with
``runtime.engine.sparse_products`` (csnode.sparsity.products). Where the non-zeros lie is known
beforehand, as it is on a node: the time of a sparse form contains what brings the values of a step
into place. Forms take turns, and the least processor time of several turns counts. Where the sparse
form stops being faster is the table of ``sparse_products: auto`` (csnode.sparsity.crossover).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from csnode.sparsity.crossover import Product, largest_density
from csnode.sparsity.products import Pattern, sampled, times
from waferstream.core.sparsity.nonzeros import Index
from waferstream.host.files import write_json
from waferstream.numerics.precision import DTYPES
from waferstream.reports.benchmark import new_file, new_result, positive

DENSITIES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25)
SHAPES = (
    (32, 1024, 1024), (128, 256, 256), (128, 512, 512), (128, 1024, 1024), (512, 1024, 1024),
    (512, 768, 3072), (2048, 1024, 1024),
)  # fmt: skip
"""Rows of the activations, inputs and outputs of the weight."""
PRODUCTS = ("outputs", "input gradients", "weight gradients")

Forms = Mapping[str, Callable[[], torch.Tensor]]


def measure_density(
    shape: tuple[int, int, int], density: float, dtype: torch.dtype, turns: int
) -> dict[str, dict[str, float]]:
    """Return seconds of the dense and the sparse form of each product, and their difference."""
    dense, sparse = _forms(shape, density, dtype)
    results = {}
    for name in PRODUCTS:
        expected, found = dense[name](), sparse[name]()
        if name == "weight gradients":
            expected = expected[_present(shape, density)]
        difference = float((expected - found).abs().max() / expected.abs().max())
        dense_s = sparse_s = float("inf")
        for _ in range(turns):
            dense_s = min(dense_s, _seconds(dense[name]))
            sparse_s = min(sparse_s, _seconds(sparse[name]))
        results[name] = {"dense_s": dense_s, "sparse_s": sparse_s, "difference": difference}
    return results


def speed_up(results: Mapping[str, Mapping[str, float]]) -> float:
    """Return the time of all dense products over that of each product's faster form."""
    pairs = [(one["dense_s"], one["sparse_s"]) for one in results.values()]
    return sum(dense_s for dense_s, _ in pairs) / sum(map(min, pairs))


def lost_by_auto(points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each product that ``sparse_products: auto`` computes in the clearly slower form."""
    for point in points:
        (rows, inputs, outputs), density = point["shape"], point["density"]
        for name, one in point["products"].items():
            kind: Product = "gradient" if name == "weight gradients" else "activations"
            ratio = one["dense_s"] / one["sparse_s"]
            if density <= largest_density("auto", kind, rows, inputs * outputs) and ratio < 1 / 1.1:
                yield f"{rows} x {inputs} x {outputs}, density {density}, {name}: {ratio:.2f}"


def _forms(shape: tuple[int, int, int], density: float, dtype: torch.dtype) -> tuple[Forms, Forms]:
    rows, inputs, outputs = shape
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, inputs, generator=generator)
    slope = torch.randn(rows, outputs, generator=generator)
    present = _present(shape, density)
    weight = (1 + torch.rand(outputs, inputs, generator=generator)) * present  # no other zeros
    pattern = Pattern(Index.of(present), (outputs, inputs))
    values = pattern.index.pack(weight).to(dtype)
    x, slope, weight = x.to(dtype), slope.to(dtype), weight.to(dtype)
    dense: Forms = {
        "outputs": lambda: x @ weight.t(),
        "input gradients": lambda: slope @ weight,
        "weight gradients": lambda: slope.t() @ x,
    }
    sparse: Forms = {
        "outputs": lambda: times(x, pattern.rows(values.float())).to(dtype),
        "input gradients": lambda: times(slope, pattern.columns(values.float())).to(dtype),
        "weight gradients": lambda: sampled(slope, x, pattern).to(dtype),
    }
    return dense, sparse


def _present(shape: tuple[int, int, int], density: float) -> torch.Tensor:
    """Return where a weight of shape (outputs, inputs) is not zero."""
    _, inputs, outputs = shape
    return torch.rand(outputs, inputs, generator=torch.Generator().manual_seed(2)) < density


def _seconds(act: Callable[[], torch.Tensor]) -> float:
    start_s = time.process_time()
    act()
    return time.process_time() - start_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--turns", type=positive, default=7, help="calls of each form")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("Below which density are sparse products faster on the CPU?")
    points: list[dict[str, Any]] = []
    for shape in SHAPES:
        print("rows {}, inputs {}, outputs {}: dense time over sparse time".format(*shape))
        for density in DENSITIES:
            found = measure_density(shape, density, DTYPES[options.dtype], options.turns)
            points.append({"shape": shape, "density": density, "products": found})
            ratios = (
                f"{name} {one['dense_s'] / one['sparse_s']:5.2f}" for name, one in found.items()
            )
            text = f"{', '.join(ratios)}; all {speed_up(found):.2f}"
            print(f"  density {density:4.2f}: {text}", flush=True)
    result["dtype"], result["points"] = options.dtype, points
    lost = list(lost_by_auto(points))
    print("auto loses nothing" if not lost else "auto loses at\n  " + "\n  ".join(lost))
    if options.json is not None:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
