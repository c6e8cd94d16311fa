"""A page with all its answers, for a talk or a paper: one knob moved at a time, or any two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

from rich.console import Console
from rich.progress import track

from waferstream.core.errors import WaferStreamError
from waferstream.explorer.answer import Answer
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.knobs import SYSTEMS, Knob
from waferstream.explorer.page import key_of, page_of
from waferstream.explorer.settings import Settings
from waferstream.host.files import replacing

MOST_MOVED = 2
"""Knobs that an exported page moves at a time, beside the number of systems."""


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
    bar = Console(stderr=True)
    shown = track(every, "Simulating", console=bar, transient=True, disable=not bar.is_terminal)
    answers = dict(_answers(explorer, shown))
    with replacing(path) as partial:
        partial.write_text(page_of(explorer, answers, is_export=True), encoding="utf-8")


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
