"""How fast a key may use requests and tokens: token buckets, which fill again all the time.

The vendor's service documents them so (inference-docs.cerebras.ai, Rate limits, "Quota
replenishment"): a request takes its prompt and the most tokens that it asks for before it begins;
what it does not use comes back at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from waferstream.core.bucket import Bucket
from waferstream.serving.accounts.keys import RateLimits

MINUTE_S, DAY_S = 60.0, 86400.0


@dataclass
class Buckets:
    """The buckets of a key, by the name of their limit; a limit of None has none."""

    requests: dict[str, Bucket] = field(default_factory=dict)
    tokens: dict[str, Bucket] = field(default_factory=dict)

    @classmethod
    def of(cls, limits: RateLimits, now_s: float, multiple: int = 1) -> Buckets:
        """Return full buckets of some limits, or of a multiple of them."""

        def full(**capacities: int | None) -> dict[str, Bucket]:
            periods = {"minute": MINUTE_S, "day": DAY_S}
            return {
                name: Bucket.full(capacity * multiple, periods[name], now_s)
                for name, capacity in capacities.items()
                if capacity is not None
            }

        return cls(
            full(minute=limits.requests_per_minute, day=limits.requests_per_day),
            full(minute=limits.tokens_per_minute, day=limits.tokens_per_day),
        )

    def shortage(self, tokens: int, now_s: float) -> Shortage | None:
        """Return what a request of some tokens has to wait for longest; None if for nothing."""
        found = [
            *(Shortage("requests", n, b, b.wait_s(1, now_s)) for n, b in self.requests.items()),
            *(Shortage("tokens", n, b, b.wait_s(tokens, now_s)) for n, b in self.tokens.items()),
        ]
        longest = max(found, key=lambda each: each.wait_s, default=None)
        return longest if longest is not None and longest.wait_s > 0 else None

    def take(self, requests: int, tokens: int, now_s: float) -> None:
        """Take requests and tokens; negative numbers give back what was not used."""
        for bucket in self.requests.values():
            bucket.take(requests, now_s)
        for bucket in self.tokens.values():
            bucket.take(tokens, now_s)


@dataclass(frozen=True)
class Shortage:
    """A bucket that has too little for a request."""

    of: str
    per: str
    bucket: Bucket
    wait_s: float
