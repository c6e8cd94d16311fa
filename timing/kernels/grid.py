"""What a kernel costs, by cause.

How activations lie on the grid: hidden features along one axis, tokens along the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from timing.hardware.fabric import FabricSpec
from wsc.core.errors import ConfigError


@dataclass(frozen=True)
class Cycles:
    """Cycles from the start of a kernel to its end, on the PE that ends last.

    Causes are exclusive: where two overlap, the longer one counts and the shorter is hidden.
    """

    compute: float = 0.0
    """The datapath works on elements."""
    memory: float = 0.0
    """The datapath moves elements, or waits for SRAM."""
    fabric: float = 0.0
    """The PE waits for wavelets, or takes them in at the speed of the link."""
    setup: float = 0.0
    """Instructions before the first element: descriptors, branches, tasks."""

    @property
    def total_cycles(self) -> float:
        return self.compute + self.memory + self.fabric + self.setup

    def __add__(self, other: Cycles) -> Cycles:
        """One after the other."""
        return Cycles(
            self.compute + other.compute,
            self.memory + other.memory,
            self.fabric + other.fabric,
            self.setup + other.setup,
        )

    def __mul__(self, times: float) -> Cycles:
        """The same several times."""
        return Cycles(
            self.compute * times, self.memory * times, self.fabric * times, self.setup * times
        )

    def at_least(self, cycles: float) -> Cycles:
        """The same, waiting for the fabric until ``cycles`` have passed."""
        return self + Cycles(fabric=max(0.0, cycles - self.total_cycles))


@dataclass(frozen=True)
class Grid:
    """The PEs that a layer's activations are spread over, and what each PE holds.

    A row of the wafer is cut into ``columns // hidden_pes`` equal stretches. Features are spread
    over the PEs of a stretch, tokens over all stretches of all rows. One stretch per row, the
    default, leaves each PE the fewest features; more of them leave each PE more features of fewer
    tokens, which is worth it where a hidden dimension does not fill a row.
    """

    fabric: FabricSpec
    hidden_pes: int

    def __post_init__(self) -> None:
        if not 1 <= self.hidden_pes <= self.fabric.columns:
            raise ConfigError(
                f"hidden_pes must be 1 to {self.fabric.columns}; got {self.hidden_pes}",
                code="hidden-pes-out-of-range",
                where="hidden_pes",
                value=self.hidden_pes,
                rule=f"1 to {self.fabric.columns}, the columns of the grid",
            )

    @classmethod
    def whole(cls, fabric: FabricSpec) -> Grid:
        """The whole wafer, one stretch of features to a row."""
        return cls(fabric, fabric.columns)

    @cached_property
    def replicas_per_row(self) -> int:
        """How often the hidden dimension lies side by side in a row."""
        return self.fabric.columns // self.hidden_pes

    @cached_property
    def token_pes(self) -> int:
        """Parts that the tokens are cut into."""
        return self.replicas_per_row * self.fabric.rows

    @property
    def num_pes(self) -> int:
        return self.hidden_pes * self.token_pes

    def features(self, hidden: int) -> int:
        """Features on the fullest PE."""
        return -(-hidden // self.hidden_pes)

    def tokens(self, tokens: int) -> int:
        """Tokens on the fullest PE."""
        return -(-tokens // self.token_pes)

    def tile(self, shape: Sequence[int]) -> tuple[int, int]:
        """Tokens and features of a tensor on the fullest PE; its last dimension is the hidden one.

        A tensor of one dimension has one token; one without, one element.
        """
        return self.tokens(prod(shape[:-1])), self.features(shape[-1] if shape else 1)

    def rectangles(self, parts: int, rows: int, columns: int) -> tuple[int, int, int]:
        """Height and width of one of ``parts`` equal rectangles of PEs, and rounds of them.

        For independent products whose results are rows x columns: the PEs are divided evenly among
        the parts, and where there are more parts than PEs, a PE does several, one after the other.
        The sides of a rectangle are in proportion to rows and columns, so that a PE's tile is
        nearly square, and no longer than these.
        """
        pes = max(1, self.num_pes // parts)
        high = min(rows, pes, max(1, round((pes * rows / columns) ** 0.5)))
        wide = min(columns, pes // high)
        return min(rows, pes // wide), wide, -(-parts // self.num_pes)
