"""Measure two ways to multiply faster, and whether they would keep the bits.

    python -m benchmarks.products --json benchmarks/results/products.json

*Side by side*: the rows of several micro-batches in one product, where each row must come out as it
does alone. *Packed*: a weight brought into oneDNN's own order once, then used by each micro-batch.
Both are compared with one product per micro-batch, as a lane computes them, on one thread and in
processor time. The gradient of a weight is not among them: micro-batches add up in a fixed order.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import thread_time

import torch

from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_MICRO_BATCHES = 4
"""Those that one lane of two computes of a round of eight."""
_SIZES = ((256, 512), (512, 768))
"""Tokens of a micro-batch and width: the models of 24 M and 98 M of ``benchmarks.streaming``."""
_SHAPES = ((1, 3), (1, 1), (1, 4), (4, 1))
"""Inputs and outputs of the products of a layer, in widths."""

Product = Callable[[], list[torch.Tensor]]


@dataclass(frozen=True)
class Measurement:
    """Processor time of one product per micro-batch over that of another way, of each repeat."""

    way: str
    dtype: str
    shape: tuple[int, int, int]
    """Tokens, inputs, outputs."""
    ratios: tuple[float, ...]
    same_bits: bool

    def __str__(self) -> str:
        """Return one line."""
        tokens, inputs, outputs = self.shape
        bits = "same bits" if self.same_bits else "other bits"
        return (
            f"{self.way:<28} {self.dtype:<8} {tokens:>4} x {inputs:>4} -> {outputs:>4}  "
            f"{statistics.median(self.ratios):.2f} ({min(self.ratios):.2f} to "
            f"{max(self.ratios):.2f}), {bits}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("one product per micro-batch over other ways, in processor time")
    found: list[Measurement] = []
    for dtype in (torch.float32, torch.bfloat16):
        for tokens, width in _SIZES:
            for inputs, outputs in _SHAPES:
                shape = (tokens, inputs * width, outputs * width)
                for one in measured(shape, dtype, options.repeats):
                    print(one, flush=True)
                    found.append(one)
    if options.json is not None:
        write_json(options.json, result | {"products": [asdict(one) for one in found]})
    return 0


def measured(shape: tuple[int, int, int], dtype: torch.dtype, repeats: int) -> list[Measurement]:
    """Return what each way gains for a shape; packing is left out where oneDNN refuses it."""
    tokens, inputs, outputs = shape
    weight = torch.randn(outputs, inputs).to(dtype)
    batches = [torch.randn(tokens, inputs).to(dtype) for _ in range(_MICRO_BATCHES)]
    gradients = [torch.randn(tokens, outputs).to(dtype) for _ in range(_MICRO_BATCHES)]
    rows, gradient_rows = torch.cat(batches), torch.cat(gradients)

    def packed() -> list[torch.Tensor]:
        order = torch.ops.mkldnn._reorder_linear_weight(weight, tokens)
        linear = torch.ops.mkldnn._linear_pointwise
        return [linear(batch, order, None, "none", [], "") for batch in batches]

    def forward() -> list[torch.Tensor]:
        return [batch @ weight.t() for batch in batches]

    def backward() -> list[torch.Tensor]:
        return [gradient @ weight for gradient in gradients]

    ways: list[tuple[str, Product, Product]] = [
        ("forward, side by side", forward, lambda: list((rows @ weight.t()).split(tokens))),
        (
            "input gradient, side by side",
            backward,
            lambda: list((gradient_rows @ weight).split(tokens)),
        ),
    ]
    if _packs(weight, tokens):
        ways.append(("forward, packed", forward, packed))
    return [
        Measurement(
            way,
            str(dtype).removeprefix("torch."),
            shape,
            tuple(_seconds(usual) / _seconds(other) for _ in range(repeats)),
            all(map(torch.equal, usual(), other())),
        )
        for way, usual, other in ways
    ]


def _packs(weight: torch.Tensor, tokens: int) -> bool:
    """Return whether oneDNN packs such a weight on this processor."""
    try:
        torch.ops.mkldnn._reorder_linear_weight(weight, tokens)
    except RuntimeError:
        return False
    return True


def _seconds(product: Product) -> float:
    start_s = thread_time()
    product()
    return thread_time() - start_s


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--repeats", type=positive, default=7, help="pairs of measurements")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
