"""A token bucket: what may be taken now, which fills again all the time."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Bucket:
    """What may be taken now: at most the capacity, which comes back over a period."""

    capacity: float
    period_s: float
    level: float
    at_s: float
    """The time of the level."""

    @classmethod
    def full(cls, capacity: float, period_s: float, now_s: float) -> Bucket:
        """Return a bucket from which nothing has been taken."""
        return cls(capacity, period_s, capacity, now_s)

    def left(self, now_s: float) -> float:
        """Return what may be taken."""
        since_s = max(0.0, now_s - self.at_s)  # a clock that is set back gives nothing then
        return min(self.capacity, self.level + since_s * self.capacity / self.period_s)

    def take(self, amount: float, now_s: float) -> None:
        """Take an amount, be it more than there is."""
        self.level, self.at_s = self.left(now_s) - amount, now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return the seconds until an amount may be taken; infinity if it never may."""
        missing = amount - self.left(now_s)
        if amount > self.capacity:
            return math.inf
        return max(0.0, missing) * self.period_s / self.capacity

    def reset_s(self, now_s: float) -> float:
        """Return the seconds until it is full again."""
        return self.wait_s(self.capacity, now_s)
