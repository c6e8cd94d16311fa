"""What several commands that predict ask for: files, keys that vary, prices, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.units import parse_count
from waferstream.reports.economics import PriceSpec, check_tokens
from waferstream.studies.grid import Grid

Over = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUES",
        help="key that varies, with a list or a range: 2,4,8 or 1-64:x2; may be repeated",
    ),
]
Outputs = Annotated[
    list[Path] | None,
    Option(
        help="file to write: .csv, .parquet, .json; of a study .pdf, .svg, .png; again for more"
    ),
]


@dataclass(frozen=True)
class Prices:
    """Flags of prices."""

    system_hour_price: Annotated[float | None, Option(help="USD of an hour of one system")] = None
    kwh_price: Annotated[float | None, Option(help="USD of a kilowatt-hour")] = None

    @property
    def spec(self) -> PriceSpec:
        """The prices that are typed."""
        typed = {name: value for name, value in asdict(self).items() if value is not None}
        return validate(PriceSpec, typed, "command line")


def tokens_of(text: str, flag: str) -> float:
    """Return a budget of tokens, such as 300B; ConfigError if it is none."""
    try:
        tokens = parse_count(text)
    except ValueError as error:
        raise ConfigError(
            "the budget must be a number of tokens",
            code="wrong-type",
            where=flag,
            value=text,
            rule="a number, as in 300B or 300e9",
        ) from error
    check_tokens(tokens, flag)
    return tokens


def grid_of(typed: Sequence[str] | None) -> Grid:
    """Return the grid of ``KEY=VALUES`` words; ConfigError for one that is none, or comes twice."""
    values: dict[str, str] = {}
    for word in typed or ():
        key, equals, text = word.partition("=")
        if not (key and equals):
            raise ConfigError(
                "a key that varies must have values",
                code="study-values-invalid",
                where="--over",
                value=word,
                rule="KEY=VALUES, as in num_csx=1-64:x2",
            )
        if key in values:
            raise ConfigError(
                "a key may vary once",
                code="duplicate-key",
                where="--over",
                value=key,
                remedy="give all its values in one list",
            )
        values[key] = text
    return Grid.parse(values)
