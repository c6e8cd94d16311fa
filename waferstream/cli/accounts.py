"""``waferstream serve keys`` and ``waferstream serve usage``: the accounts of a service."""

from __future__ import annotations

import argparse
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, fields
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from waferstream.core.errors import ConfigError
from waferstream.core.secrets import digest_of, new_secret
from waferstream.host.files import json_text
from waferstream.serving.accounts.keys import NANODOLLARS, PREFIX, Key, RateLimits
from waferstream.serving.accounts.store import Store, not_open

COMMANDS = ("keys", "usage")

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
"""Names of keys: they stand in logs and lists."""

FILE = Path("accounts.db")
"""Where the commands look for accounts unless they are told."""


def accounts_parser(command: str) -> argparse.ArgumentParser:
    """Build the argparse parser of ``serve keys`` or ``serve usage``."""
    parser = argparse.ArgumentParser(prog=f"waferstream serve {command}", allow_abbrev=False)
    if command == "keys":
        parser.add_argument(
            "action",
            choices=("create", "list", "revoke", "pay"),
            help="make a key and show it once, list all, end one, or add to its balance",
        )
        parser.add_argument("name", nargs="?", help="of the key; not for list")
        _add_terms(parser)
    else:
        parser.add_argument("--key", help="the name of one key (default: all)")
    parser.add_argument(
        "--accounts", type=Path, default=FILE, help=f"the file of keys (default: {FILE})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_terms(parser: argparse.ArgumentParser) -> None:
    """Declare what a key may use."""
    for limit in fields(RateLimits):
        parser.add_argument(f"--{limit.name}", type=int, help="of a new key (default: no limit)")
    parser.add_argument(
        "--reserved_tokens_per_s", type=int, default=0, help="provisioned throughput of a new key"
    )
    parser.add_argument(
        "--balance",
        help="dollars, paid in advance: of a new key (default: billed later), or added by pay",
    )


def run_accounts(words: Sequence[str]) -> int:
    """Run one of the commands; return its exit code.

    Raises:
        ConfigError: An argument is wrong, or the file cannot be used.
    """
    command, *rest = words
    parser = accounts_parser(command)
    given = parser.parse_args(rest)
    is_list = command == "usage" or given.action == "list"
    if command == "keys" and (given.name is None) != is_list:
        parser.error("list takes no name" if is_list else f"{given.action} takes a name")
    is_new = command == "keys" and given.action == "create"
    if not is_new and not given.accounts.exists():
        raise ConfigError(
            "the file of keys must exist",
            code="accounts-missing",
            where="--accounts",
            value=given.accounts,
            remedy="waferstream serve keys create NAME makes it",
        )
    try:
        with closing(Store(given.accounts)) as store:
            result = _usage(store, given) if command == "usage" else _keys(store, given)
    except sqlite3.Error as error:
        raise not_open(given.accounts, error) from error
    print(json_text(result) if given.json else "\n".join(_lines(result)))
    return 0


def _keys(store: Store, given: argparse.Namespace) -> Any:
    """Do what ``serve keys`` says; return what is printed."""
    if given.action == "list":
        spent = store.spent()
        return [_about(key, spent.get(key.name, 0)) for key in store.known_keys()]
    if given.action == "create":
        return _create(store, given)
    if given.action == "pay":
        is_there = store.pay(given.name, _nanodollars(given.balance or "0", least=1))
    else:
        is_there = store.revoke(given.name, time.time())
    if not is_there:
        raise ConfigError(
            "the key must exist",
            code="no-such-key",
            value=given.name,
            remedy="waferstream serve keys list",
        )
    return {given.action: given.name}


def _create(store: Store, given: argparse.Namespace) -> dict[str, Any]:
    """Add a key; return it with its secret, which is nowhere else."""
    if not NAME.fullmatch(given.name):
        raise ConfigError(
            "the name of a key must be a short word",
            code="out-of-range",
            value=given.name,
            rule="1 to 64 letters, digits, dots, hyphens and underscores",
        )
    limits = {each.name: getattr(given, each.name) for each in fields(RateLimits)}
    for name, value in {**limits, "reserved_tokens_per_s": given.reserved_tokens_per_s}.items():
        least = 0 if name == "reserved_tokens_per_s" else 1
        if value is not None and value < least:
            raise ConfigError(
                f"--{name} must be at least {least}", code="out-of-range", value=value
            )
    paid = None if given.balance is None else _nanodollars(given.balance)
    secret = new_secret(PREFIX)
    key = Key(
        given.name, digest_of(secret), time.time(), RateLimits(**limits),
        given.reserved_tokens_per_s, paid,
    )  # fmt: skip
    if not store.add(key):
        raise ConfigError(
            "the name of a key must be new",
            code="key-exists",
            value=given.name,
            rule="what was used is kept by name, also of a key that is revoked",
            remedy="name it otherwise",
        )
    return {"name": key.name, "key": secret}


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


def _usage(store: Store, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what was used by key, model and day."""
    return [_in_dollars(asdict(row)) for row in store.usage(given.key)]


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


def _in_dollars(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(row)
    shown["dollars"] = shown.pop("nanodollars") / NANODOLLARS
    return shown


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _lines(result: Any) -> list[str]:
    """Return a table of rows, or the lines of one."""
    if isinstance(result, dict):
        return [f"{name}: {value}" for name, value in result.items()]
    if not result:
        return ["none"]
    cells = [
        list(result[0]),
        *(["" if v is None else f"{v}" for v in row.values()] for row in result),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
