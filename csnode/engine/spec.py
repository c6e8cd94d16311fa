"""Configuration of the engines of a run (``runtime.engine`` of cluster.yaml), and their report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from pydantic import Field, PositiveInt, model_validator

from csnode.sparsity.crossover import SparseProducts
from waferstream.core.config import Config
from waferstream.core.errors import ConfigError

EngineName = Literal["torch", "wafer", "wafer-cycles"]
KernelKind = Literal["matmul", "attention", "norm", "softmax", "reduction"]
KernelCode = Literal["eager", "compiled", "auto"]
KernelName = Literal[
    "streamed_product",
    "token_product",
    "resident_product",
    "feature_sum",
    "token_sum",
    "softmax",
    "layer_norm",
    "rms_norm",
]
KERNEL_NAMES: tuple[KernelName, ...] = get_args(KernelName)
"""Kernels of the array; an op is made of one or several."""


class EngineSpec(Config):
    """What computes the kernels of CS nodes, and the region of the wafer that they run on."""

    default: EngineName = "torch"
    """``torch``: the kernels of torch. ``wafer``: products, sums, softmax and norms in the order of
    the array of PEs. ``wafer-cycles``: the same bits from the simulator of the fabric, which also
    counts cycles; for small models and regions."""

    layers: dict[str, EngineName] = Field(default_factory=dict)
    """Engine by layer of the schedule, where it is not the default."""

    kernels: KernelCode | dict[KernelKind, EngineName] = "eager"
    """How torch computes a segment: ``eager`` op by op, ``compiled`` with loops that a C++ compiler
    has made of elementwise ops and sums, which decides bits, ``auto`` compiled where that was
    measured to be faster and the run is long enough. Or the engine by kind of kernel, which
    precedes that of the layer; torch is eager then."""

    rows: PositiveInt = 512
    """Rows of PEs of the region: tokens lie down the columns."""

    columns: PositiveInt = 512
    """Columns of PEs of the region: features lie along the rows. Defects leave the region as it is,
    so values do not depend on them."""

    sparse_products: SparseProducts = "none"
    """Products with sparse weights that torch computes from the non-zeros alone, which decides
    bits: ``none``, those with weights of a density at most, or ``auto``, those where it was
    measured to pay (csnode.sparsity.crossover)."""

    @model_validator(mode="after")
    def _torch_multiplies_somewhere(self) -> EngineSpec:
        if self.sparse_products == "none" or "torch" in self._engines_of_products:
            return self
        raise ConfigError(
            "sparse_products needs products that torch computes",
            code="sparse-products-without-torch",
            where="runtime.engine.sparse_products",
            value=self.sparse_products,
            rule="the array of PEs computes every product whole, in its own order",
            remedy="remove sparse_products, or set kernels: {matmul: torch}",
        )

    @property
    def by_kind(self) -> Mapping[KernelKind, EngineName]:
        """The engine by kind of kernel, where it is not that of the layer."""
        return {} if isinstance(self.kernels, str) else self.kernels

    @property
    def code(self) -> KernelCode:
        """How torch computes a segment."""
        return self.kernels if isinstance(self.kernels, str) else "eager"

    def fuses(self, layer: str) -> bool:
        """Return whether the segments of a layer may be compiled: torch computes all of them."""
        engine = self.layers.get(layer, self.default)
        return self.code != "eager" and engine == "torch" and self.sparse_products == "none"

    @property
    def _engines_of_products(self) -> set[EngineName]:
        if "matmul" in self.by_kind:
            return {self.by_kind["matmul"]}
        return {self.default, *self.layers.values()}

    def sparse_products_of(self, layer: str) -> SparseProducts:
        """Return which products of a layer are computed from non-zeros: none on the array."""
        return self.sparse_products if self.of(layer, "matmul") == "torch" else "none"

    def of(self, layer: str, kind: str) -> EngineName:
        """Return the engine of a kernel of a layer."""
        if kind not in KINDS:
            return "torch"
        own = self.by_kind.get(cast("KernelKind", kind))
        return own or self.layers.get(layer, self.default)

    @property
    def is_torch(self) -> bool:
        """Whether torch computes every kernel."""
        return {self.default, *self.layers.values(), *self.by_kind.values()} == {"torch"}


KINDS: frozenset[str] = frozenset(get_args(KernelKind))
"""Kinds of kernels that add up many values, in an order of the engine's own."""

TORCH = EngineSpec()
"""Kernels of torch, the default."""


@dataclass(frozen=True)
class LayerRegion:
    """Where the kernels of one segment run, and their cycles for a micro-batch."""

    layer: str
    phase: str
    engines: tuple[EngineName, ...]
    rows: int
    columns: int
    cycles: int
    """Of all ops, by closed forms."""
    kernel_cycles: int
    """Of the kernels that ``wafer-cycles`` runs on the simulator, by closed forms."""
    counted_cycles: int
    """Of the same kernels, counted by the simulator; 0 where it was not asked."""
