"""Which products with a sparse weight are computed from its non-zeros alone.

A sparse product adds in another order than the dense kernel of torch, so the choice decides bits.
It depends on the setting, the shapes of the program and the density of the mask, on nothing else:
every node, on any host and in any cluster, chooses alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

SparseProducts = Literal["none", "auto"] | Annotated[float, Field(gt=0, le=1)]
"""``none``: no product. A density: those with weights of this density at most. ``auto``: those with
weights below the measured crossover of their product and size."""

Product = Literal["activations", "gradient"]
"""``activations``: of activations, or of their gradients, with a weight. ``gradient``: of both, at
the places of a weight's non-zeros."""

FEWEST_ELEMENTS = 2**19
"""Elements of a weight below which a dense product takes less than the calls of a sparse one."""

CROSSOVERS: Mapping[Product, tuple[tuple[int, float], ...]] = {
    "activations": ((64, 0.1), (256, 0.12), (2**63, 0.15)),
    "gradient": ((64, 0.05), (2**63, 0.1)),
}
"""Density up to which the sparse form is faster, by the rows of the activations at most. Measured
by ``python -m benchmarks.sparsity.products`` (benchmarks/results/sparse_products.json)."""


def largest_density(setting: SparseProducts, product: Product, rows: int, elements: int) -> float:
    """Return the density up to which a product is computed from non-zeros; 0 for none.

    Args:
        setting: ``runtime.engine.sparse_products``.
        product: The product.
        rows: Rows of the activations.
        elements: Elements of the weight, zeros included.
    """
    if setting == "none" or elements > 2**31 - 1:  # places are numbers of 32 bits
        return 0.0
    if setting != "auto":
        return setting
    if elements < FEWEST_ELEMENTS:
        return 0.0
    return next(density for most, density in CROSSOVERS[product] if rows <= most)


def highest_density(setting: SparseProducts) -> float:
    """Return the density above which no product is computed from non-zeros."""
    if setting == "none":
        return 0.0
    if setting != "auto":
        return setting
    return max(density for table in CROSSOVERS.values() for _, density in table)
