"""How activations lie on the grid: hidden features along one axis, tokens along the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from timing.hardware.fabric import FabricSpec
from wsc.core.errors import ConfigError


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
                "the hidden dimension does not fit the grid",
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
