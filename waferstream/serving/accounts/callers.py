"""Who asks, and the bill of an answer: what the paths of a service know of accounts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import uuid4

from waferstream.core.errors import RequestRefused
from waferstream.core.serving import Terms, Tier, Usage
from waferstream.serving.accounts.account import Account, Demand, Hold, key_revoked
from waferstream.serving.accounts.keys import NANODOLLARS, Key
from waferstream.serving.accounts.prices import Price
from waferstream.serving.accounts.store import AnswerRow, Store
from waferstream.serving.accounts.writer import Writer

Refuse = Callable[[RequestRefused], None]
"""Ends an answer under way with an error; from any thread, and it must not wait."""


class Bill:
    """What the answers to one request use, which is settled once when all have ended.

    As a context it is for answers that begin: an error voids it.

    Args:
        tenant: The name of the caller.
        tier: The tier of the answers.
        prompts: The tokens of their prompts; 0 for a prompt that another answer pays.
        settled: Gets what was used; None if the answers did not begin.
        reserved_tokens_per_s: The throughput that others cannot take.
    """

    def __init__(
        self,
        tenant: str,
        tier: Tier,
        prompts: Sequence[int],
        settled: Callable[[Usage | None], None],
        reserved_tokens_per_s: float = 0.0,
    ) -> None:
        self.tenant = tenant
        self.tier = tier
        self._prompts = prompts
        self._settled = settled
        self._reserved_tokens_per_s = reserved_tokens_per_s
        self._used: dict[int, Usage] = {}
        self._is_open = True
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Settle the bill of an answer that could not be asked for."""
        if kind is not None:
            self.void()

    def terms(self, number: int) -> Terms:
        """Return the terms of one of the answers."""
        settle = partial(self._settle, number)
        return Terms(self.tenant, self.tier, self._reserved_tokens_per_s, settle)

    def void(self) -> None:
        """Ask for nothing, as the answers did not begin."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._settled(None)

    def _settle(self, number: int, usage: Usage) -> None:
        """Take what an answer has used, from any thread; its first end counts."""
        prompt = self._prompts[number]
        used = Usage(prompt, min(prompt, usage.cached_tokens), usage.completion_tokens)
        with self._lock:
            if not self._is_open or number in self._used:
                return
            self._used[number] = used
            self._is_open = len(self._used) < len(self._prompts)
            if self._is_open:
                return
            total = Usage(*map(sum, zip(*map(astuple, self._used.values()), strict=True)))
        self._settled(total)


class Caller(Protocol):
    """Whoever asks: a key, or anybody where there are none."""

    @property
    def name(self) -> str:
        """The name under which the caller shares the service with others."""

    async def begin(self, demand: Demand, refuse: Refuse) -> Bill:
        """Let the answers to a request begin.

        Args:
            demand: What they may take.
            refuse: Ends the answers if the key is revoked.

        Raises:
            RequestRefused: The caller may not ask for it now.
        """

    def limits(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Return what may be used, as ``Account.limits`` has it."""

    async def usage(self) -> Mapping[str, Any]:
        """Return what was used by model and day, and the balance in dollars."""


class Anybody:
    """The caller of a service without keys."""

    name = ""

    async def begin(self, demand: Demand, refuse: Refuse) -> Bill:
        """Let answers begin, in any tier."""
        del refuse
        tier = "default" if demand.tier == "auto" else demand.tier
        return Bill(self.name, tier, demand.prompts, lambda _: None)

    def limits(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Return that there are none."""
        return {"requests": {}, "tokens": {}}

    async def usage(self) -> Mapping[str, Any]:
        """Return that nothing is counted."""
        return {"days": [], "balance": None}


@dataclass(frozen=True)
class _Begun:
    """An answer under way."""

    row: AnswerRow
    hold: Hold
    refuse: Refuse


class KeyCaller:
    """A key of a running service.

    Args:
        account: Its rules, which are called under a lock.
        price: That of the model that is served.
        writer: Writes what begins and ends.
        file: The file of accounts.
        clock: Returns the time in seconds since 1970.
    """

    def __init__(
        self,
        account: Account,
        price: Price,
        writer: Writer,
        file: Path,
        clock: Callable[[], float],
    ) -> None:
        self._account = account
        self._price = price
        self._writer = writer
        self._file = file
        self._clock = clock
        self._begun: dict[str, _Begun] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the key."""
        return self._account.key.name

    def check(self) -> None:
        """Raise RequestRefused if the key is revoked."""
        self._account.check()

    def change(self, key: Key) -> None:
        """Take the key as another process has written it; end the answers of a revoked one."""
        with self._lock:
            self._account.key = key
            begun = list(self._begun.values()) if key.revoked_s is not None else []
        for each in begun:
            each.refuse(key_revoked(key.name))

    async def begin(self, demand: Demand, refuse: Refuse) -> Bill:
        """Let answers begin: hold what they may take, and write their row."""
        name = f"ans-{uuid4().hex}"
        prompt = replace(demand.most, completion_tokens=0)
        cost = self._price.nanodollars(prompt)
        with self._lock:
            now_s = self._clock()
            hold = self._account.admit(demand, self._price, now_s)
            row = AnswerRow(name, self.name, demand.model, hold.tier, now_s, prompt, cost)
            self._begun[name] = _Begun(row, hold, refuse)
        reserved = self._account.key.reserved_tokens_per_s if hold.tier == "priority" else 0
        bill = Bill(self.name, hold.tier, demand.prompts, partial(self._end, name), reserved)
        try:
            await asyncio.wrap_future(self._writer.begin(row))
        except BaseException:
            bill.void()
            raise
        return bill

    def limits(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Return what may be used, as ``Account.limits`` has it."""
        with self._lock:
            return self._account.limits(self._clock())

    async def usage(self) -> Mapping[str, Any]:
        """Return what the key has used by model and day, and its balance in dollars.

        Raises:
            RequestRefused: The file cannot be written, or read.
        """
        await asyncio.wrap_future(self._writer.catch_up())
        balance = self._account.balance_nanodollars
        return {
            "days": await asyncio.to_thread(self._days),
            "balance": None if balance is None else balance / NANODOLLARS,
        }

    def _end(self, name: str, usage: Usage | None) -> None:
        """Settle an answer, from any thread."""
        with self._lock:
            begun = self._begun.pop(name)
            cost = self._account.settle(begun.hold, usage, self._price, self._clock())
        row = None if usage is None else replace(begun.row, usage=usage, nanodollars=cost)
        self._writer.end(name, row)

    def _days(self) -> list[dict[str, Any]]:
        with closing(Store(self._file)) as store:
            return [asdict(day) for day in store.usage(self.name)]
