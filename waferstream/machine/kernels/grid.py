"""Cycles by cause, and how activations are spread over the grid of PEs.

Hidden features lie along one axis of the grid, tokens along the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.fabric import FabricSpec


@dataclass(frozen=True)
class Cycles:
    """Cycles from the start of a kernel to its end, by cause, on the PE that ends last.

    Causes are exclusive: where two overlap, the longer one counts and the shorter one is hidden.
    """

    compute: float = 0.0
    """The datapath computes."""
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
        """Return the cost of both, one after the other."""
        return Cycles(
            self.compute + other.compute,
            self.memory + other.memory,
            self.fabric + other.fabric,
            self.setup + other.setup,
        )

    def __mul__(self, times: float) -> Cycles:
        """Return the cost of ``times`` repetitions."""
        return Cycles(
            self.compute * times, self.memory * times, self.fabric * times, self.setup * times
        )

    def at_least(self, cycles: float) -> Cycles:
        """Return the cost with waiting for the fabric until ``cycles`` have passed."""
        return self + Cycles(fabric=max(0.0, cycles - self.total_cycles))


@dataclass(frozen=True)
class Grid:
    """PEs that the activations of a layer are spread over.

    A row of the wafer holds ``replicas_per_row`` = columns // hidden_pes equal pieces. Features are
    spread over the PEs of a piece, tokens over all pieces of all rows::

        columns // hidden_pes = 2       |- hidden_pes -|- hidden_pes -|
        row 0                           tokens part 0  | tokens part 1
        row 1                           tokens part 2  | tokens part 3

    One piece per row, the default, leaves each PE the fewest features. More pieces leave each PE
    more features of fewer tokens, which is faster where a hidden dimension does not fill a row.
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
        """Return the whole wafer with one piece per row."""
        return cls(fabric, fabric.columns)

    @cached_property
    def replicas_per_row(self) -> int:
        """Copies of the hidden dimension side by side in a row."""
        return self.fabric.columns // self.hidden_pes

    @cached_property
    def token_pes(self) -> int:
        """Parts that the tokens are divided into."""
        return self.replicas_per_row * self.fabric.rows

    @property
    def num_pes(self) -> int:
        return self.hidden_pes * self.token_pes

    def features(self, hidden: int) -> int:
        """Return the features on the fullest PE."""
        return -(-hidden // self.hidden_pes)

    def tokens(self, tokens: int) -> int:
        """Return the tokens on the fullest PE."""
        return -(-tokens // self.token_pes)

    def tile(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return tokens and features of a tensor on the fullest PE.

        The last dimension is the hidden one. A tensor of one dimension has one token; a scalar has
        one element.
        """
        return self.tokens(prod(shape[:-1])), self.features(shape[-1] if shape else 1)

    def rectangles(self, parts: int, rows: int, columns: int) -> tuple[int, int, int]:
        """Return height and width of one of ``parts`` equal rectangles of PEs, and the rounds.

        For independent products with results of rows x columns. The PEs are divided evenly among
        the parts; if there are more parts than PEs, a PE computes several, one per round. The sides
        of a rectangle are proportional to rows and columns, so that a PE's tile is nearly square,
        and not longer than these.
        """
        pes = max(1, self.num_pes // parts)
        high = min(rows, pes, max(1, round((pes * rows / columns) ** 0.5)))
        wide = min(columns, pes // high)
        return min(rows, pes // wide), wide, -(-parts // self.num_pes)
