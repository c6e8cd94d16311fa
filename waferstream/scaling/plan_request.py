"""Machines to compare for a model, as they are typed, ``CS-3:4`` and ``h100``, and as requested."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.reports.economics import check_tokens
from waferstream.reports.tco.prices import Prices

_COUNT = re.compile(r"[1-9]\d{0,4}", re.ASCII)


@dataclass(frozen=True)
class Asked:
    """A kind of machine, and how many of it.

    Without a count, systems are as many as the params file has, GPUs as many as are as fast.
    """

    name: str
    """``CS-3``, ``H100``."""
    count: int | None = None


@dataclass(frozen=True)
class PlanRequest:
    """What is to be compared for which budget.

    Raises:
        ConfigError: No run has such a budget.
    """

    systems: tuple[Asked, ...]
    gpus: tuple[Asked, ...]
    tokens: float
    runs: int = 1
    compiled: bool = False
    """Whether GPUs run with torch.compile."""
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        check_tokens(self.tokens, "--budget")


def parse_asked(text: str, known: Collection[str], where: str) -> tuple[Asked, ...]:
    """Parse kinds of machines with or without counts, such as ``h100:64,b200``.

    Args:
        text: Kinds separated by commas, in any case of letters.
        known: Names of the kinds that there are.
        where: The flag, for errors.

    Raises:
        ConfigError: A kind is not known, or a count is no number from 1 to 99,999.
    """
    return tuple(_parse_one(part.strip(), known, where) for part in text.split(","))


def _parse_one(text: str, known: Collection[str], where: str) -> Asked:
    kind, colon, count = (part.strip() for part in text.partition(":"))
    name = {each.lower(): each for each in known}.get(kind.lower())
    if name is None:
        raise ConfigError(
            "a machine must be one that is known",
            code="unknown-machine-kind",
            where=where,
            value=text or "nothing",
            rule=f"{', '.join(known)}, each with a count as in {next(iter(known))}:8, or without",
            remedy=did_you_mean(kind.upper(), known),
        )
    if colon and not _COUNT.fullmatch(count):
        raise ConfigError(
            "a number of machines must be a count",
            code="out-of-range",
            where=where,
            value=text,
            rule="1 to 99,999",
            remedy=f"{name}:8 for eight of them, or {name} for as many as the comparison needs",
        )
    return Asked(name, int(count) if colon else None)
