"""Zeros among the activations of a model, beside a simulation that does not skip them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waferstream.core.units import aligned
from waferstream.reports.page import Block, Section, Sentence, Table

_HEADER = ("layer", "zeros read", "of all multiplications")


@dataclass(frozen=True)
class ProductZeros:
    """The activations that one product reads."""

    layer: str
    share: float
    """Share of zeros."""
    part: float
    """Share of the multiplications of all products."""


@dataclass(frozen=True)
class ActivationZeros:
    """Zeros that the products of a model read."""

    weights: str
    """The weights with which the model ran, in words."""
    samples: int
    products: tuple[ProductZeros, ...]

    @property
    def saved(self) -> float:
        """Share of the multiplications of products that skipping zeros would save."""
        return sum(product.share * product.part for product in self.products)

    @property
    def verdict(self) -> str:
        """What skipping zeros would save, as a sentence."""
        return (
            f"With {self.weights}, skipping zeros among activations would save {self.saved:.1%} of "
            "the multiplications of products; the emulated clock does not skip them."
        )

    def lines(self) -> Iterator[str]:
        """Yield a table and the verdict as lines of text."""
        yield from aligned([_HEADER, *self._rows()])
        yield self.verdict

    def section(self) -> Section:
        """Return a table and the verdict as a section of a page."""
        blocks: list[Block] = [
            Sentence(self.verdict, is_note=False),
            Table(_HEADER, list(self._rows())),
            Sentence(f"Measured on {self.samples} samples of the training data, in fp32."),
        ]
        return Section("zeros", "Zeros among activations", blocks)

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for product in self.products:
            yield product.layer, f"{product.share:.1%}", f"{product.part:.1%}"
