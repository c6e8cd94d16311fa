"""Arguments and flags that several commands declare, and how what was typed is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from waferstream.core.errors import ConfigError
from waferstream.core.units import parse_count
from waferstream.reports.economics import check_tokens

if TYPE_CHECKING:
    from appliance.spec import ClusterSpec

_MOST_PORT = 65_535
"""RFC 9293: a port has 16 bits. gRPC takes the low ones of a larger number, and says nothing."""


def cluster_file(typed: Path | str | None, folders: Sequence[Path]) -> Path | None:
    """Return the named file of the machine, else the first cluster.yaml in ``folders``."""
    if typed is not None:
        return Path(typed)
    candidates = (folder / "cluster.yaml" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)


def _found(ctx: typer.Context, value: Path | None) -> Path | None:
    return cluster_file(value, (Path(), ctx.obj))


Params = Annotated[
    Path, Argument(help="YAML file with model, optimizer, data and loop", metavar="PARAMS")
]
Cluster = Annotated[
    Path | None,
    Option(help="YAML file of the machine (default: cluster.yaml in this folder)", callback=_found),
]
"""The file of the machine, which all commands find by the same rule; None where there is none."""

Page = Annotated[Path | None, Option(help="file of the page to write, with a tornado")]


def machine_of(cluster: Path | None) -> ClusterSpec:
    """Return the machine of a file, or the default one."""
    from appliance.spec import ClusterSpec, load_cluster  # noqa: PLC0415  (slow)

    return load_cluster(cluster) if cluster else ClusterSpec()


def new_file(path: Path, remedy: str = "delete it, or name another file") -> Path:
    """Return a path at which there is no file yet; ConfigError if there is one."""
    if path.exists():
        raise ConfigError(
            "the file must not exist yet", code="file-exists", where=str(path), remedy=remedy
        )
    return path


def port_flag(text: str) -> Any:
    """Return the declaration of a flag whose help is ``text``, and whose 0 is any free port."""
    return Option(min=0, max=_MOST_PORT, help=text)


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
