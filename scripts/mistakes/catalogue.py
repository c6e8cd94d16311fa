"""All forty mistakes, in their order."""

from __future__ import annotations

from scripts.mistakes.mistake import Mistake
from scripts.mistakes.programs import PROGRAMS
from scripts.mistakes.runs import RUNS
from scripts.mistakes.settings import SETTINGS

MISTAKES: tuple[Mistake, ...] = tuple(
    sorted((*SETTINGS, *RUNS, *PROGRAMS), key=lambda each: each.number)
)
