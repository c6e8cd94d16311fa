"""A square region of a wafer, and instruction costs of its PEs.

Two of the costs are assumed, as three rows of one model need them; the others come from
measurements of single PEs and of reductions. ``column_cycles`` has little effect on prefill: with
the 1.1 cycles per column of K0123 to K0131, prefill is 2 to 6 % too fast.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import NonNegativeFloat, PositiveFloat

from waferstream.core.arguments import check_least
from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import WSE2, FabricSpec
from waferstream.machine.hardware.sourced import sourced

SMALLEST_SIDE = 3
"""Fewest PEs in a row that two-hop shifts need; He et al., section 5.2."""


@dataclass(frozen=True)
class Region:
    """A square of side x side PEs; WaferLLM converts cycles with a clock of 1.1 GHz."""

    side: int
    fabric: FabricSpec = WSE2
    clock_hz: int = 1_100_000_000

    def __post_init__(self) -> None:
        check_least("a region", clock_hz=self.clock_hz)
        largest = min(self.fabric.columns, self.fabric.rows)
        if not SMALLEST_SIDE <= self.side <= largest:
            raise ConfigError(
                "the side of a region must fit the wafer",
                code="region-exceeds-wafer",
                where="region, side",
                value=self.side,
                rule=f"{SMALLEST_SIDE} to {largest} PEs, the shorter side of the grid",
            )

    @property
    def sram_bytes(self) -> int:
        """SRAM of its PEs."""
        return self.side**2 * self.fabric.sram_bytes_per_pe

    @property
    def snake(self) -> tuple[tuple[int, int], ...]:
        """First column and row of each region of this side on a wafer, each beside the next."""
        across = range(0, self.fabric.columns - self.side + 1, self.side)
        down = range(0, self.fabric.rows - self.side + 1, self.side)
        return tuple(
            (column, row)
            for index, row in enumerate(down)
            for column in (reversed(across) if index % 2 else across)
        )

    def tile(self, extent: int) -> int:
        """Return the elements of an extent that each PE of a row holds, after padding."""
        return -(-extent // self.side)

    def seconds(self, cycles: float) -> float:
        """Return the seconds of ``cycles``."""
        return cycles / self.clock_hz


class PeCosts(Config):
    """Cycles of one PE that ``FabricSpec`` (network and vector unit) does not describe."""

    mac_cycles: PositiveFloat = sourced(
        0.52, "published", "K0108: fp16 multiply-add of a matrix-vector product in one tile"
    )
    column_cycles: NonNegativeFloat = sourced(
        1.549, "assumed", "issue of one mapped column, as T0138 and T0140 need; 1.1 in fp32 (K0123)"
    )
    map_setup_cycles: NonNegativeFloat = sourced(
        35, "derived", "intercept of K0123 to K0131, matrix-vector products of one tile"
    )
    loop_cycles: NonNegativeFloat = sourced(
        43, "published", "K0133: one iteration of a loop around vector instructions"
    )
    step_cycles: NonNegativeFloat = sourced(
        120, "published", "K0134: start of one step of a distributed matrix product"
    )
    reduce_setup_cycles: NonNegativeFloat = sourced(
        76,
        "derived",
        "two-phase reduction of 512 PEs beyond its formula, 61 + 15; Luczynski et al.",
    )
    function_cycles: NonNegativeFloat = sourced(
        108.8, "assumed", "a division, square root or exponential in software, as T0174 needs"
    )


PE_COSTS = PeCosts()
