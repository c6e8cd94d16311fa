"""A claim about the machine, and whether the machine of the clock can do it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat

from waferstream.core.config import Config, load_yaml, validate
from waferstream.machine.intervals import AnyInterval, Unknown

CLAIMS = Path(__file__).parents[1] / "data/claims/claims.yaml"

Verdict = Literal["right", "within the interval", "outside the interval", "impossible"]


class Claim(Config):
    """What somebody says of the machine, and the command that replays it."""

    name: str
    who: Literal["lesson", "article", "talk", "announcement"]
    says: str
    source: str = "as heard; it names no source"
    kind: Literal["days", "speed_up", "fits", "hidden", "capacity", "figure"]
    value: PositiveFloat
    figure: str = ""
    """The line of ``machine show`` that a figure is held against."""
    command: str
    note: str = ""


class _Claims(Config):
    claims: tuple[Claim, ...]


def read_claims(path: Path = CLAIMS) -> tuple[Claim, ...]:
    """Return the claims of a file.

    Raises:
        ConfigError: The file is malformed.
    """
    return validate(_Claims, load_yaml(path), str(path)).claims


@dataclass(frozen=True)
class Outcome:
    """What the clock says to a claim."""

    predicted: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Speeds:
    """A speed that is claimed, that which the clock predicts, and the most that could be.

    All in one unit; a duration is the inverse of a speed.
    """

    claimed: float
    predicted: float | None
    """None where the model does not fit."""
    most: float
    limit: str
    """What the most is, such as ``its dense peak``."""


def judge(speeds: Speeds, interval: AnyInterval) -> tuple[Verdict, str]:
    """Return whether a machine reaches a speed, and why.

    Args:
        speeds: The speeds.
        interval: The interval of the prediction.
    """
    claimed, predicted, most = speeds.claimed, speeds.predicted, speeds.most
    if claimed > most:
        return "impossible", f"needs {claimed / most:.1f} times {speeds.limit}"
    if predicted is None:
        return "impossible", "the model does not fit"
    if claimed <= predicted:
        return "right", f"the prediction is {predicted / claimed:.2f} times as fast"
    share = f"needs {claimed / most:.0%} of {speeds.limit}, where {predicted / most:.0%} is reached"
    if isinstance(interval, Unknown):
        return "outside the interval", f"{share}; the interval is {interval}"
    fastest = interval.around(predicted)[1]
    reach = f"nine of ten such runs are up to {fastest / predicted:.2f} times as fast as predicted"
    if claimed <= fastest:
        return "within the interval", f"{share}; {reach}"
    return "outside the interval", f"{share}; {reach}, the claim {claimed / predicted:.2f} times"
