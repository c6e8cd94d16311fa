"""A page with all its answers, for a talk or a paper: one knob moved at a time, or any two."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, product
from pathlib import Path

from rich.console import Console
from rich.progress import track

from waferstream.core.errors import WaferStreamError
from waferstream.explorer.answer import Answer
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.knobs import SLOW, SYSTEMS, Knob
from waferstream.explorer.page import key_of, page_of
from waferstream.explorer.settings import Settings
from waferstream.host.files import replacing
from waferstream.reports.amounts import format_duration

MOST_MOVED = 2
"""Knobs that an exported page moves at a time, beside the number of systems."""

_BETWEEN_LINES_S = 10.0


def settings_of(knobs: Sequence[Knob]) -> Iterator[Settings]:
    """Yield the settings of an exported page: that at rest, then those of one knob, and of two."""
    moved = [
        [(knob.name, stop) for stop in knob.coarse if stop != knob.value]
        for knob in knobs
        if knob.name != SYSTEMS
    ]
    for count in range(MOST_MOVED + 1):
        for chosen in combinations(moved, count):
            yield from map(dict, product(*chosen))


def write_page(explorer: Explorer, path: Path) -> None:
    """Write the page of a file with its answers to all settings that it offers.

    Raises:
        WaferStreamError: The files themselves have no answer.
    """
    every = list(settings_of(explorer.knobs))
    slow = [settings for settings in every if settings.keys() <= {*SLOW} and len(settings) < 2]
    others = [settings for settings in every if settings not in slow]
    told = chain(_told(slow, "steps recorded"), _told(others, "settings simulated"))
    answers = dict(_answers(explorer, told))
    with replacing(path) as partial:
        partial.write_text(page_of(explorer, answers, is_export=True), encoding="utf-8")


def _told(every: Sequence[Settings], what: str) -> Iterator[Settings]:
    """Yield settings; a terminal shows a bar with the time left, another output a line of it."""
    shown = Console(stderr=True)
    if shown.is_terminal:
        yield from track(every, what.capitalize(), console=shown, transient=True)
        return
    begin_s = told_s = time.monotonic()
    for done, settings in enumerate(every):
        now_s = time.monotonic()
        if now_s - told_s >= _BETWEEN_LINES_S:
            left = format_duration((now_s - begin_s) * (len(every) - done) / done)
            print(f"{done} of {len(every)} {what}, {left} left", file=sys.stderr)
            told_s = now_s
        yield settings


def _answers(
    explorer: Explorer, every: Iterable[Settings]
) -> Iterator[tuple[str, Answer | WaferStreamError]]:
    """Yield the answer of each setting, or why there is none."""
    for settings in every:
        try:
            yield key_of(settings), explorer.answer(settings)
        except WaferStreamError as error:
            if not settings:
                raise
            yield key_of(settings), error
