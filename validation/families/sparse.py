"""Predict what zeros among weights save of a model: operations, and parameters.

Published results of sparse training on the wafer count operations and no time. The prediction
counts them on the captured graph: products with sparse weights count by their density, attention,
embedding and output head in full. A training counts three times the forward pass, dense or sparse,
as the sources count: the gradient of a sparse weight takes the operations of its non-zeros. (The
emulated clock charges the dense kernel for that gradient where it is the faster one.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat

import torch

from cstorch.sparse.filters import default_sparse_param_filter
from validation.families.prediction import Family
from validation.families.workloads import program_of
from validation.rows.row import CannotPredict, Row
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.program.segment import ARITHMETIC_KINDS
from waferstream.machine.densities import DENSE, Densities, op_densities
from waferstream.workload.published_names import published_name


def operations(program: Program, densities: Densities = DENSE) -> float:
    """Return the operations of a step's products and attention; those with zeros are skipped."""
    return sum(
        op.flops * density
        for segment in program.segments
        for op, density in zip(
            segment.work, op_densities(segment, program, densities) or repeat(1.0), strict=False
        )
        if op.kind in ARITHMETIC_KINDS
    )


def elements(program: Program, densities: Densities = DENSE) -> float:
    """Return the parameters of a program that are not zero."""
    return sum(spec.num_elements * densities.get(spec.name, 1.0) for spec in program.parameters)


def sparse_densities(program: Program, density: float) -> dict[str, float]:
    """Return the density of every weight that the default filter makes sparse."""
    return {
        spec.name: density
        for spec in program.parameters
        if default_sparse_param_filter(
            published_name(spec.name), torch.empty(spec.shape, device="meta")
        )
    }


def _ratio(count: Callable[[Program, Densities], float]) -> Callable[[Row], float]:
    """Return the prediction of a dense count over that of a row's sparse model."""

    def predict(row: Row) -> float:
        sparsity = row.number("sparsity_pct")
        if sparsity is None:
            raise CannotPredict("the share of zeros is not stated", code="sparsity-not-stated")
        program = program_of(row, ProgramKind.EVAL).smallest
        densities = sparse_densities(program, 1 - sparsity / 100)
        return count(program, DENSE) / count(program, densities)

    return predict


_FEWER_OPERATIONS = _ratio(operations)

_PREDICTIONS: Mapping[str, Callable[[Row], float]] = {
    "x fewer FLOPs": _FEWER_OPERATIONS,
    "% fewer FLOPs": lambda row: 100 * (1 - 1 / _FEWER_OPERATIONS(row)),
    "x fewer parameters": _ratio(elements),
}
"""Prediction by unit."""

_ACCURACY = ("accuracy is measured at small scale (docs/numerics.md)", "accuracy-not-predicted")
_NOT_PREDICTED: Mapping[str, tuple[str, str]] = {
    "% top-1": _ACCURACY,
    "x perplexity": _ACCURACY,
    "speedup": ("no published speed-up states sizes and share of zeros", "sizes-not-stated"),
}
"""Reason and its code by unit."""


def _predict(row: Row) -> float:
    if row.unit in _NOT_PREDICTED:
        reason, code = _NOT_PREDICTED[row.unit]
        raise CannotPredict(reason, code=code)
    return _PREDICTIONS[row.unit](row)


def _knows(row: Row) -> bool:
    return row.kind == "training" and row.unit in {*_PREDICTIONS, *_NOT_PREDICTED}


FAMILIES: tuple[Family, ...] = (Family("sparse operations", _knows, _predict),)
