"""The lines of a file of requests, as OpenAI's batches have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from waferstream.core.rng import stream_key

LINE_BYTES = 1 << 20
"""The longest line."""

MOST_LINES = 50_000
"""The most requests of a file."""

MOST_FAULTS = 20
"""The most faults of a file that are told."""


class Line(BaseModel):
    """One request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    custom_id: Annotated[str, Field(min_length=1, max_length=512)]
    method: Literal["POST"]
    url: str
    body: dict[str, Any]

    def seeded(self) -> dict[str, Any]:
        """Return the body with a seed: its own, or one that follows from the name of the line."""
        if self.body.get("seed") is not None:
            return self.body
        return {**self.body, "seed": stream_key(0, "batch", self.custom_id) % 2**31}


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file, and in which line."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


def lines_of(path: Path) -> Iterator[tuple[int, Line | Fault]]:
    """Yield the lines of a file that are not empty, each with its number from 1."""
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(LINE_BYTES + 1):
            number += 1
            if len(raw) > LINE_BYTES:
                yield number, Fault("line_too_long", f"at most {LINE_BYTES} bytes", number)
                return  # what follows is the rest of this line
            if raw.strip():
                yield number, _parsed(raw, number)


def checked(path: Path, urls: frozenset[str]) -> tuple[int, list[Fault]]:
    """Return how many requests a file has, and what is wrong with them.

    Args:
        path: The file.
        urls: The paths that requests may go to.
    """
    faults: list[Fault] = []
    names: set[str] = set()
    for number, line in lines_of(path):
        fault = line if isinstance(line, Fault) else _fault_beside(line, number, names, urls)
        if fault is not None:
            faults.append(fault)
        elif isinstance(line, Line):
            names.add(line.custom_id)
        if len(faults) == MOST_FAULTS:
            return len(names), faults
        if len(names) > MOST_LINES:
            return len(names), [Fault("too_many_lines", f"at most {MOST_LINES} requests", number)]
    if not names and not faults:
        faults.append(Fault("empty_file", "the file has no request"))
    return len(names), faults


def _parsed(raw: bytes, number: int) -> Line | Fault:
    try:
        return Line.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        code = "invalid_json_line" if first["type"] == "json_invalid" else "invalid_request"
        param = ".".join(map(str, first["loc"])) or None
        return Fault(code, first["msg"], number, param)


def _fault_beside(line: Line, number: int, names: set[str], urls: frozenset[str]) -> Fault | None:
    """Return what is wrong with a line beside those before it."""
    if line.custom_id in names:
        message = f"custom_id {line.custom_id!r} occurs twice"
        return Fault("duplicate_custom_id", message, number, "custom_id")
    if line.url not in urls:
        message = f"{line.url!r} is none of {', '.join(sorted(urls))}"
        return Fault("invalid_url", message, number, "url")
    return None
