"""Keys of a service as plain data. The secret of a key is shown once, and kept as its hash."""

from __future__ import annotations

from dataclasses import dataclass, field

NANODOLLARS = 10**9
"""Of a dollar. Prices and balances are whole numbers of them, so that sums are exact."""

PREFIX = "wsk-"
"""How every secret begins, so that scanners of repositories can find it."""


@dataclass(frozen=True)
class RateLimits:
    """What a key may use in a time; None for any amount."""

    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True)
class Key:
    """A key, as the store has it."""

    name: str
    digest: str
    """Of its secret (``waferstream.core.secrets``)."""
    created_s: float
    limits: RateLimits = field(default_factory=RateLimits)
    reserved_tokens_per_s: int = 0
    """Its provisioned throughput, which others cannot take."""
    paid_nanodollars: int | None = None
    """What has been paid for it in advance; None for a key that is billed later."""
    revoked_s: float | None = None
