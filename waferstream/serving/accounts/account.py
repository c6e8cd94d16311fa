"""What one key may ask for: the rules, without I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from waferstream.core.bucket import Bucket
from waferstream.core.errors import RequestRefused
from waferstream.core.serving import Tier, Usage
from waferstream.serving.accounts.buckets import MINUTE_S, Buckets, Shortage
from waferstream.serving.accounts.keys import NANODOLLARS, Key
from waferstream.serving.accounts.prices import Price
from waferstream.serving.accounts.store import AnswerRow

AskedTier = Tier | Literal["auto"]
"""What a request may ask for; ``auto`` takes the first of all that has room."""

FLEX_MULTIPLE = 4
"""The limits of the tier flex, which are counted apart, over those of the others: the vendor's
documents say "several multiples" (Service tiers, FAQ)."""


@dataclass(frozen=True)
class Demand:
    """What the answers to a request may take.

    Attributes:
        model: The model that is asked.
        prompts: The tokens of the prompt of each answer; 0 for one that another answer pays.
        most_tokens: The most tokens of all answers together.
        tier: The tier that is asked for.
    """

    model: str
    prompts: tuple[int, ...]
    most_tokens: int
    tier: AskedTier = "default"

    @property
    def most(self) -> Usage:
        """The most that is used."""
        return Usage(sum(self.prompts), 0, self.most_tokens)


@dataclass(frozen=True)
class Hold:
    """What an answer under way may take at most."""

    tier: Tier
    tokens: int
    nanodollars: int


class Account:
    """A key with what it has used.

    Args:
        key: The key.
        now_s: The time.
        spent_nanodollars: What its answers have cost so far.
        rows: Its answers of the last day, as they began: they count against its limits.
    """

    def __init__(
        self,
        key: Key,
        now_s: float,
        spent_nanodollars: int = 0,
        rows: Sequence[AnswerRow] = (),
    ) -> None:
        self.key = key
        self.spent_nanodollars = spent_nanodollars
        self._held_nanodollars = 0
        begin_s = min([now_s, *(row.began_s for row in rows)])
        self._buckets: dict[Tier, Buckets] = {
            "default": Buckets.of(key.limits, begin_s),
            "flex": Buckets.of(key.limits, begin_s, FLEX_MULTIPLE),
        }
        if reserved := key.reserved_tokens_per_s * MINUTE_S:
            bucket = Bucket.full(reserved, MINUTE_S, begin_s)
            self._buckets["priority"] = Buckets(tokens={"minute": bucket})
        for row in rows:
            tokens = row.usage.prompt_tokens + row.usage.completion_tokens
            self._buckets[row.tier].take(1, tokens, row.began_s)

    @property
    def balance_nanodollars(self) -> int | None:
        """What is left of what was paid, less what answers under way may cost; None: no limit."""
        if self.key.paid_nanodollars is None:
            return None
        return self.key.paid_nanodollars - self.spent_nanodollars - self._held_nanodollars

    def admit(self, demand: Demand, price: Price, now_s: float) -> Hold:
        """Let answers begin; what they may take at most is held until their end.

        Raises:
            RequestRefused: The key is revoked, its balance is empty, or it must wait.
        """
        self.check()
        most = demand.most
        cost, tokens = price.nanodollars(most), most.prompt_tokens + most.completion_tokens
        balance = self.balance_nanodollars
        if balance is not None and (balance <= 0 or cost > balance):
            raise _balance_empty(balance, cost)
        used = self._tier_with_room(demand.tier, tokens, now_s)
        self._buckets[used].take(1, tokens, now_s)
        self._held_nanodollars += cost
        return Hold(used, tokens, cost)

    def settle(self, hold: Hold, usage: Usage | None, price: Price, now_s: float) -> int:
        """End an answer: give back what it did not use; return what it costs.

        Args:
            hold: What ``admit`` returned.
            usage: What it used; None if it did not begin, so that it does not count.
            price: That of ``admit``.
            now_s: The time.
        """
        used = Usage(0, 0, 0) if usage is None else usage
        tokens, cost = used.prompt_tokens + used.completion_tokens, price.nanodollars(used)
        self._buckets[hold.tier].take(-1 if usage is None else 0, tokens - hold.tokens, now_s)
        self._held_nanodollars -= hold.nanodollars
        self.spent_nanodollars += cost
        return cost

    def check(self) -> None:
        """Raise RequestRefused if the key is revoked."""
        if self.key.revoked_s is not None:
            raise key_revoked(self.key.name)

    def limits(self, now_s: float) -> dict[str, dict[str, dict[str, float]]]:
        """Return what may be used, by requests or tokens and by period.

        Of each: the limit, what remains of it, and the seconds until all of it is back (reset).
        """
        buckets = self._buckets["default"]
        return {
            name: {
                period: {
                    "limit": bucket.capacity,
                    "remaining": math.floor(max(0.0, bucket.left(now_s))),
                    "reset": bucket.reset_s(now_s),
                }
                for period, bucket in found.items()
            }
            for name, found in (("requests", buckets.requests), ("tokens", buckets.tokens))
        }

    def _tier_with_room(self, asked: AskedTier, tokens: int, now_s: float) -> Tier:
        """Return the tier of an answer.

        Raises:
            RequestRefused: There is no room in the tier that is asked for, or in any.
        """
        if asked == "priority" and asked not in self._buckets:
            raise _tier_not_reserved(self.key.name)
        order: list[Tier] = ["priority", "default", "flex"]
        tiers = [tier for tier in order if asked in {tier, "auto"} and tier in self._buckets]
        shortages = {tier: self._buckets[tier].shortage(tokens, now_s) for tier in tiers}
        for tier, shortage in shortages.items():
            if shortage is None:
                return tier
        raise _rate_limited(
            min((each for each in shortages.values() if each), key=lambda each: each.wait_s), tokens
        )


def key_revoked(name: str) -> RequestRefused:
    """Return the error of a key that is revoked."""
    return RequestRefused(
        "the key must not be revoked",
        code="key-revoked",
        value=name,
        remedy="ask for another: waferstream serve keys create",
    )


def _tier_not_reserved(name: str) -> RequestRefused:
    return RequestRefused(
        "service_tier priority must have provisioned throughput",
        code="tier-not-reserved",
        value=f"key {name}",
        rule="the tier is for keys that were created with --reserved_tokens_per_s",
        remedy="ask for auto, default or flex",
    )


def _balance_empty(balance: int, cost: int) -> RequestRefused:
    return RequestRefused(
        "the balance must cover what the answer may cost",
        code="balance-empty",
        value=f"{balance / NANODOLLARS:g} dollars are left",
        rule=f"with its most tokens it costs {cost / NANODOLLARS:g} dollars",
        remedy="add to the balance, or ask for fewer tokens",
    )


def _rate_limited(shortage: Shortage, tokens: int) -> RequestRefused:
    of, per, bucket = shortage.of, shortage.per, shortage.bucket
    error = RequestRefused(
        f"the limit of {of} per {per} must have room for the request",
        code="rate-limit-exceeded",
        value=f"{tokens} tokens of prompt and answer" if of == "tokens" else "1 request",
        rule=f"{bucket.capacity:g} {of} per {per}, which come back all the time",
        remedy="repeat it later, or ask for fewer tokens (max_completion_tokens)",
    )
    return error if math.isinf(shortage.wait_s) else error.until(shortage.wait_s)
