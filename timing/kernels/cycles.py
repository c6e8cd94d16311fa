"""What a kernel costs, by cause."""

from __future__ import annotations

from dataclasses import dataclass


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
