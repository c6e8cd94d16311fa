from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import RequestRefused
from waferstream.core.serving import Tier, Usage
from waferstream.serving.accounts.account import Account, Demand
from waferstream.serving.accounts.keys import Key, RateLimits
from waferstream.serving.accounts.prices import Price
from waferstream.serving.accounts.store import AnswerRow

KEY = Key("one", "digest", 0)
PRICE = Price(input=Decimal("0.35"), output=Decimal("0.75"), cached=Decimal("0.1"))


def limited(tokens: int, reserved: int = 0) -> Account:
    limits = RateLimits(tokens_per_minute=tokens)
    return Account(replace(KEY, limits=limits, reserved_tokens_per_s=reserved), 0)


def test_price_is_exact() -> None:
    """350, 100 and 750 nanodollars per token."""
    assert PRICE.nanodollars(Usage(10, 4, 3)) == 6 * 350 + 4 * 100 + 3 * 750


def test_balance_covers_what_answers_under_way_may_cost() -> None:
    account = Account(replace(KEY, paid_nanodollars=2 * 1100 * 100), 0)
    hold = account.admit(Demand("m", (100,), 100, "default"), PRICE, 0)
    account.admit(Demand("m", (100,), 100, "default"), PRICE, 0)
    assert account.balance_nanodollars == 0
    with raises(RequestRefused, "balance-empty"):
        account.admit(Demand("m", (1,), 1, "default"), PRICE, 0)
    assert account.settle(hold, Usage(100, 0, 10), PRICE, 0) == 100 * 350 + 10 * 750
    assert account.balance_nanodollars == 90 * 750


@given(asked=st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99), st.booleans())))
def test_no_balance_is_overdrawn(asked: list[tuple[int, int, bool]]) -> None:
    account = Account(replace(KEY, paid_nanodollars=10**5), 0)
    for prompt, most, is_whole in asked:
        try:
            hold = account.admit(Demand("m", (prompt,), most, "default"), PRICE, 0)
        except RequestRefused:
            continue
        account.settle(hold, Usage(prompt, 0, most if is_whole else 0), PRICE, 0)
        assert (account.balance_nanodollars or 0) >= 0


def test_answer_that_did_not_begin_does_not_count() -> None:
    account = Account(replace(KEY, limits=RateLimits(1, 1, 10, 10), paid_nanodollars=10**9), 0)
    hold = account.admit(Demand("m", (5,), 5, "default"), PRICE, 0)
    assert account.settle(hold, None, PRICE, 0) == 0
    account.admit(Demand("m", (5,), 5, "default"), PRICE, 0)


def test_request_that_must_wait_is_told_for_how_long() -> None:
    account = limited(60)
    account.admit(Demand("m", (10,), 40, "default"), PRICE, 0)
    with pytest.raises(RequestRefused) as caught:
        account.admit(Demand("m", (10,), 10, "default"), PRICE, 0)
    assert caught.value.code == "rate-limit-exceeded"
    assert caught.value.retry_after_s == pytest.approx(10)
    account.admit(Demand("m", (10,), 10, "default"), PRICE, 10)
    assert account.limits(10)["tokens"]["minute"] == {"limit": 60, "remaining": 0, "reset": 60}


def test_request_that_never_fits_is_not_told_to_wait() -> None:
    with pytest.raises(RequestRefused) as caught:
        limited(60).admit(Demand("m", (61,), 1, "default"), PRICE, 0)
    assert caught.value.retry_after_s is None


def test_auto_takes_the_first_tier_that_has_room() -> None:
    """Of 60 tokens reserved, 60 by limit, and four times as many of the lowest tier."""
    account = limited(60, reserved=1)
    tiers: list[Tier] = [
        account.admit(Demand("m", (20,), 10, "auto"), PRICE, 0).tier for _ in range(12)
    ]
    assert tiers == ["priority"] * 2 + ["default"] * 2 + ["flex"] * 8
    with raises(RequestRefused, "rate-limit-exceeded"):
        account.admit(Demand("m", (20,), 10, "auto"), PRICE, 0)


def test_priority_needs_a_reservation() -> None:
    with raises(RequestRefused, "tier-not-reserved"):
        limited(60).admit(Demand("m", (1,), 1, "priority"), PRICE, 0)


def test_what_was_used_before_a_restart_counts() -> None:
    rows = [
        AnswerRow(str(at_s), "one", "m", "default", at_s, Usage(10, 0, 10), 0) for at_s in (0, 40)
    ]
    key = replace(KEY, limits=RateLimits(requests_per_day=2, tokens_per_minute=60))
    account = Account(key, 50, 0, rows)
    limits = account.limits(50)
    assert limits["requests"]["day"]["remaining"] == 0
    assert limits["tokens"]["minute"]["remaining"] == 50


def test_revoked_key_is_refused() -> None:
    with raises(RequestRefused, "key-revoked"):
        Account(replace(KEY, revoked_s=1), 0).admit(Demand("m", (1,), 1, "default"), PRICE, 0)
