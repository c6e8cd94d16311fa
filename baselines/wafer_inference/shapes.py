"""What runs, and where: the shape of a decoder, and a square region of a wafer."""

from __future__ import annotations

from dataclasses import dataclass

from timing.hardware import WSE2, FabricSpec
from timing.least import check_least
from wsc.core.errors import ConfigError

ELEMENT_BYTES = 2
"""Weights, activations and the KV cache are fp16."""

SMALLEST_SIDE = 3
"""Two-hop shifts need three PEs in a row; He et al., section 5.2."""


@dataclass(frozen=True)
class Decoder:
    """A decoder with gated feed-forward blocks, as LLaMA has them; extents in elements.

    ``kv_dim`` is the width of keys and values, all their heads together. Which head an element
    belongs to does not enter: the programs run all heads as one.
    """

    dim: int
    ffn: int
    layers: int
    kv_dim: int

    def __post_init__(self) -> None:
        check_least("a decoder", dim=self.dim, ffn=self.ffn, layers=self.layers, kv_dim=self.kv_dim)

    @property
    def layer_bytes(self) -> int:
        """The weights of one layer: Q and O, K and V, and three of the feed-forward block."""
        attention = 2 * self.dim * self.dim + 2 * self.dim * self.kv_dim
        return ELEMENT_BYTES * (attention + 3 * self.dim * self.ffn)

    @property
    def weight_bytes(self) -> int:
        """The weights of all layers; embedding and head stay with the host."""
        return self.layers * self.layer_bytes

    def cache_bytes(self, tokens: int) -> int:
        """Keys and values of ``tokens`` in all layers."""
        return 2 * ELEMENT_BYTES * self.layers * self.kv_dim * tokens


@dataclass(frozen=True)
class Region:
    """A square of side x side PEs. The clock of 1.1 GHz is the one WaferLLM converts with."""

    side: int
    fabric: FabricSpec = WSE2
    clock_hz: int = 1_100_000_000

    def __post_init__(self) -> None:
        check_least("a region", clock_hz=self.clock_hz)
        largest = min(self.fabric.columns, self.fabric.rows)
        if not SMALLEST_SIDE <= self.side <= largest:
            raise ConfigError(
                "the region does not fit the wafer",
                where="region, side",
                value=self.side,
                rule=f"{SMALLEST_SIDE} to {largest} PEs, the shorter side of the grid",
            )

    def tile(self, extent: int) -> int:
        """Elements of an extent that each PE of a row holds, after padding."""
        return -(-extent // self.side)

    def seconds(self, cycles: float) -> float:
        return cycles / self.clock_hz
