"""Bills of a key: counted once whatever ends an answer, and whatever fails beneath."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError, RequestRefused
from waferstream.core.secrets import digest_of
from waferstream.core.serving import Usage
from waferstream.serving.accounts import store as store_module
from waferstream.serving.accounts.account import Demand
from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.accounts.callers import Bill
from waferstream.serving.accounts.keys import Key, RateLimits
from waferstream.serving.accounts.prices import Price
from waferstream.serving.accounts.store import Store

PRICE = Price(input=Decimal(1), output=Decimal(2))
SECRET = "wsk-test"
LIMITS = RateLimits(requests_per_day=10**6, tokens_per_day=10**9)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "accounts.db"
    with closing(Store(file)) as store:
        store.add(Key("one", digest_of(SECRET), 0.0, LIMITS, paid_nanodollars=10**12))
    return file


@pytest.fixture
def other(file: Path) -> Iterator[sqlite3.Connection]:
    """Another process that uses the file."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as made:
        yield made


def used_by(file: Path) -> tuple[int, int, int]:
    with closing(Store(file)) as store:
        days = store.usage()
    return (
        sum(day.requests for day in days),
        sum(day.prompt_tokens for day in days),
        sum(day.completion_tokens for day in days),
    )


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_each_answer_is_counted_once(
    file: Path, other: sqlite3.Connection, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers begin, end twice, and do not begin, while others hold the database now and then."""
    monkeypatch.setattr(store_module, "BUSY_S", 0.01)
    draw = random.Random(seed)
    expected = [0, 0, 0]

    async def use(accounts: Accounts) -> None:
        caller = await accounts.caller(SECRET)
        bills: list[Bill] = []
        for _ in range(300):
            action = draw.choice(["begin", "begin", "settle", "void", "lock", "unlock"])
            if action == "begin":
                with suppress(RequestRefused):
                    bills.append(await caller.begin(Demand("m", (5, 0), 20), lambda _: None))
            elif action == "lock" and not other.in_transaction:
                other.execute("BEGIN IMMEDIATE")
            elif action == "unlock" and other.in_transaction:
                other.execute("ROLLBACK")
            elif bills:
                settle(bills.pop(draw.randrange(len(bills))), is_void=action == "void")
        if other.in_transaction:
            other.execute("ROLLBACK")
        for bill in bills:
            settle(bill, is_void=False)
        used = await caller.usage()
        spent = expected[1] * 1000 + expected[2] * 2000
        assert used["balance"] == pytest.approx((10**12 - spent) / 10**9, abs=1e-12)
        limits = caller.limits()
        assert limits["requests"]["day"]["remaining"] == 10**6 - expected[0]
        assert limits["tokens"]["day"]["remaining"] == 10**9 - expected[1] - expected[2]

    def settle(bill: Bill, *, is_void: bool) -> None:
        if is_void:
            bill.void()
        tokens = draw.randrange(10)
        for number in (1, 0):
            for _ in range(2):
                bill.terms(number).settle(Usage(5, 0, tokens))
        if not is_void:
            bill.void()
            expected[0] += 1
            expected[1] += 5
            expected[2] += 2 * tokens

    with Accounts(file, PRICE, clock=lambda: 1000.0) as accounts:
        asyncio.run(use(accounts))
    assert used_by(file) == tuple(expected)


def test_answers_under_way_are_refused_when_their_key_is_revoked(file: Path) -> None:
    async def use(accounts: Accounts) -> None:
        caller = await accounts.caller(SECRET)
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[RequestRefused] = loop.create_future()

        def refuse(error: RequestRefused) -> None:
            loop.call_soon_threadsafe(refused.set_result, error)

        bill = await caller.begin(Demand("m", (5,), 5), refuse)
        with closing(Store(file)) as store:
            store.revoke("one", 1.0)
        assert (await asyncio.wait_for(refused, 30)).code == "key-revoked"
        bill.terms(0).settle(Usage(5, 0, 2))
        with raises(RequestRefused, "key-revoked"):
            await accounts.caller(SECRET)

    with Accounts(file, PRICE) as accounts:
        asyncio.run(use(accounts))
    assert used_by(file) == (1, 5, 2)


def test_service_that_was_killed_leaves_its_prompts(file: Path) -> None:
    """And a day that has its requests, so that a restart gives nobody more."""

    async def begin(accounts: Accounts) -> None:
        caller = await accounts.caller(SECRET)
        await caller.begin(Demand("m", (5,), 20), lambda _: None)

    async def remaining(accounts: Accounts) -> float:
        return (await accounts.caller(SECRET)).limits()["requests"]["day"]["remaining"]

    with Accounts(file, PRICE, clock=lambda: 1000.0) as accounts:
        asyncio.run(begin(accounts))  # which nothing settles
    with Accounts(file, PRICE, clock=lambda: 1000.0) as accounts:
        assert asyncio.run(remaining(accounts)) == 10**6 - 1
    assert used_by(file) == (1, 5, 0)


def test_file_that_another_process_holds_is_refused(file: Path, other: sqlite3.Connection) -> None:
    other.execute("BEGIN IMMEDIATE")
    with raises(ConfigError, "accounts-not-open"):
        Accounts(file, PRICE)
    other.execute("ROLLBACK")
    with Accounts(file, PRICE):
        pass


def test_file_has_one_service(file: Path) -> None:
    with Accounts(file, PRICE), raises(ConfigError, "accounts-in-use"):
        Accounts(file, PRICE)
    with Accounts(file, PRICE):
        pass
