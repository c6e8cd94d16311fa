"""``waferstream serve keys`` and ``waferstream serve usage``: the accounts of a service."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import answer, show
from waferstream.core.errors import ConfigError
from waferstream.core.secrets import digest_of, new_secret
from waferstream.serving.accounts.keys import NANODOLLARS, PREFIX, Key, RateLimits
from waferstream.serving.accounts.store import Store, not_open

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
"""Names of keys: they stand in logs and lists."""

Accounts = Annotated[Path, Option(help="the file of keys")]
FILE = Path("accounts.db")
"""Where the commands look for accounts unless they are told."""

KeyName = Annotated[str, Argument(help="of the key")]
Limit = Annotated[int | None, Option(min=1, help="of the key (default: no limit)")]


@command("serve keys create", "anne --tokens_per_minute 60000")
def create_key(
    name: KeyName,
    requests_per_minute: Limit = None,
    requests_per_day: Limit = None,
    tokens_per_minute: Limit = None,
    tokens_per_day: Limit = None,
    reserved_tokens_per_s: Annotated[int, Option(min=0, help="provisioned throughput")] = 0,
    balance: Annotated[
        str | None, Option(help="dollars, paid in advance (default: billed later)")
    ] = None,
    accounts: Accounts = FILE,
) -> int:
    """Make a key, and show it once: it is nowhere else."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            "the name of a key must be a short word",
            code="out-of-range",
            value=name,
            rule="1 to 64 letters, digits, dots, hyphens and underscores",
        )
    paid = None if balance is None else _nanodollars(balance)
    secret = new_secret(PREFIX)
    limits = RateLimits(requests_per_minute, requests_per_day, tokens_per_minute, tokens_per_day)
    key = Key(name, digest_of(secret), time.time(), limits, reserved_tokens_per_s, paid)
    with _opened(accounts, is_new=True) as store:
        if not store.add(key):
            raise ConfigError(
                "the name of a key must be new",
                code="key-exists",
                value=name,
                rule="what was used is kept by name, also of a key that is revoked",
                remedy="name it otherwise",
            )
    return answer({"name": name, "key": secret}, f"name: {name}\nkey: {secret}")


@command("serve keys list")
def list_keys(accounts: Accounts = FILE) -> int:
    """List the keys: what they may use, and what is left of their balance."""
    with _opened(accounts) as store:
        spent = store.spent()
        return show([_about(key, spent.get(key.name, 0)) for key in store.known_keys()])


@command("serve keys revoke", "anne")
def revoke_key(name: KeyName, accounts: Accounts = FILE) -> int:
    """End a key."""
    with _opened(accounts) as store:
        return _tell(name, "revoke", is_there=store.revoke(name, time.time()))


@command("serve keys pay", "anne --balance 5")
def pay(
    name: KeyName,
    balance: Annotated[str, Option(help="dollars to add")] = "0",
    accounts: Accounts = FILE,
) -> int:
    """Add dollars to the balance of a key."""
    with _opened(accounts) as store:
        return _tell(name, "pay", is_there=store.pay(name, _nanodollars(balance, least=1)))


@command("serve usage", "--key anne")
def show_usage(
    key: Annotated[str | None, Option(help="the name of one key (default: all)")] = None,
    accounts: Accounts = FILE,
) -> int:
    """Show what was used by key, model and day."""
    with _opened(accounts) as store:
        rows = [asdict(row) for row in store.usage(key)]
    for row in rows:
        row["dollars"] = row.pop("nanodollars") / NANODOLLARS
    return show(rows)


@contextmanager
def _opened(path: Path, *, is_new: bool = False) -> Iterator[Store]:
    """Open the file of keys.

    Raises:
        ConfigError: It is not there, and none is made, or it cannot be used.
    """
    if not is_new and not path.exists():
        raise ConfigError(
            "the file of keys must exist",
            code="accounts-missing",
            where="--accounts",
            value=path,
            remedy="waferstream serve keys create NAME makes it",
        )
    try:
        with closing(Store(path)) as store:
            yield store
    except sqlite3.Error as error:
        raise not_open(path, error) from error


def _tell(name: str, done: str, *, is_there: bool) -> int:
    """Print what was done with a key; ConfigError if there is no such key."""
    if not is_there:
        raise ConfigError(
            "the key must exist",
            code="no-such-key",
            value=name,
            remedy="waferstream serve keys list",
        )
    return answer({done: name}, f"{done}: {name}")


def _nanodollars(dollars: str, least: int = 0) -> int:
    try:
        value = Decimal(dollars) * NANODOLLARS
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < least or value != int(value) or value >= 2**62:
        raise ConfigError(
            "--balance must be an amount of dollars",
            code="out-of-range",
            where="--balance",
            value=dollars,
            rule="above 0 to pay, with nine digits after the point at most",
        )
    return int(value)


def _about(key: Key, spent: int) -> dict[str, Any]:
    """Return what is shown of a key: not its hash."""
    left = None if key.paid_nanodollars is None else key.paid_nanodollars - spent
    return {
        "name": key.name,
        "created": _time(key.created_s),
        "revoked": key.revoked_s and _time(key.revoked_s),
        **asdict(key.limits),
        "reserved_tokens_per_s": key.reserved_tokens_per_s,
        "balance": None if left is None else left / NANODOLLARS,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
