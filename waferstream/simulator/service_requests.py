"""Who asks a service what and when: users in a closed loop, a Poisson stream, or a record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from pydantic import Field, NonNegativeFloat, PositiveInt

from waferstream.core.config import Config, validate
from waferstream.core.config_errors import unreadable
from waferstream.core.errors import ConfigError
from waferstream.core.units import PS_PER_S
from waferstream.simulator.service_load import Asked

MOST_TOKENS = 10**7


class Lengths(Config):
    """Tokens of prompts and answers, drawn from half to one and a half times these.

    All 21 steps between are as likely.
    """

    prompt: PositiveInt = Field(default=1000, le=MOST_TOKENS)
    output: PositiveInt = Field(default=200, le=MOST_TOKENS)

    @classmethod
    def of(cls, requests: Sequence[Asked]) -> Lengths:
        """Return the means of requests."""
        count = max(1, len(requests))
        prompts = sum(each.prompt for each in requests)
        outputs = sum(each.output for each in requests)
        return cls(prompt=max(1, prompts // count), output=max(1, outputs // count))

    def draw(self, random: Random) -> tuple[int, int]:
        """Return the tokens of a prompt and its answer."""
        return _around(self.prompt, random), _around(self.output, random)


class Recorded(Config):
    """A line of a record of requests."""

    arrival_s: NonNegativeFloat = Field(le=1e9)
    prompt_tokens: PositiveInt = Field(le=MOST_TOKENS)
    completion_tokens: PositiveInt = Field(le=MOST_TOKENS)


def of_users(users: int, each: int, within_ps: int, lengths: Lengths, seed: int) -> list[Asked]:
    """Return the first requests of users, of whom each asks anew when it has got its answer.

    Args:
        users: How many.
        each: How often a user asks.
        within_ps: The time in which all begin.
        lengths: Tokens of prompts and answers.
        seed: Of begins and lengths: more users ask the same as fewer did, and then more.
    """
    return [_user(index, each, within_ps, lengths, seed) for index in range(users)]


def _user(index: int, each: int, within_ps: int, lengths: Lengths, seed: int) -> Asked:
    random = Random(f"{seed}/{index}")
    begin_ps = int(random.random() * within_ps)
    asked: Asked | None = None
    drawn = [lengths.draw(random) for _ in range(each)]
    for place, (prompt, output) in reversed(list(enumerate(drawn))):
        asked = Asked(0 if place else begin_ps, prompt, output, asked)
    assert asked is not None
    return asked


def poisson(rate_per_s: float, count: int, lengths: Lengths, seed: int) -> list[Asked]:
    """Return requests that come independently of one another at a mean rate."""
    random, now_s, found = Random(seed), 0.0, []
    for _ in range(count):
        now_s += random.expovariate(rate_per_s)
        found.append(Asked(int(now_s * PS_PER_S), *lengths.draw(random)))
    return found


def recorded(path: Path) -> list[Asked]:
    """Return the requests of a file of JSON lines.

    Raises:
        ConfigError: It cannot be read, or a line is no request.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise unreadable(path, error) from error
    return list(_lines(path, lines))


def _lines(path: Path, lines: list[bytes]) -> Iterator[Asked]:
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                "a line must be JSON", code="request-line-malformed", where=where, value=error
            ) from error
        row = validate(Recorded, data, where)
        yield Asked(int(row.arrival_s * PS_PER_S), row.prompt_tokens, row.completion_tokens)


def _around(mean: int, random: Random) -> int:
    return max(1, mean * (10 + random.randrange(21)) // 20)
