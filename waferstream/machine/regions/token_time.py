"""Time of tokens by cause, in integer picoseconds that add up exactly."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class TokenTime:
    """What a token, or several, waited for from its begin to its end."""

    compute_ps: int = 0
    """Products, functions and norms on the PEs."""
    fabric_ps: int = 0
    """All-reduces, shifts and moves between regions of a wafer."""
    waiting_ps: int = 0
    """For a region that earlier tokens of the same request occupy."""
    hop_ps: int = 0
    """From wafer to wafer."""
    cycle_ps: int = 0
    """From the end of the pipeline back to its begin."""

    @property
    def total_ps(self) -> int:
        """All causes together."""
        return sum(self.by_cause.values())

    @property
    def by_cause(self) -> dict[str, int]:
        """Picoseconds by cause, in the order of the causes."""
        return {cause.name.removesuffix("_ps"): getattr(self, cause.name) for cause in fields(self)}

    def __add__(self, other: TokenTime) -> TokenTime:
        pairs = zip(self.by_cause.values(), other.by_cause.values(), strict=True)
        return TokenTime(*(mine + theirs for mine, theirs in pairs))

    def scaled(self, times: int, over: int = 1) -> TokenTime:
        """Return this time ``times / over`` times, each cause rounded down."""
        return TokenTime(*(ps * times // over for ps in self.by_cause.values()))
