"""History of a model: the losses of all runs in its folder, as lines of JSON.

A run that trains or evaluates begins with a line ``{"run": FOLDER, ...}``. Then come lines with
``step`` and ``loss``, or ``step`` and ``eval_loss``, and further numbers by name. Runs only append,
so a run that is killed loses nothing, and an evaluation may write while a run trains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from waferstream.host.files import naming, open_regular
from waferstream.reports.run.summary import Evaluation, Loss, Rates

HISTORY_NAME = "history.jsonl"

Value = TypeVar("Value")


@dataclass(frozen=True)
class Curves:
    """Losses of training and of evaluation over the steps that the weights went through."""

    train: tuple[Loss, ...] = ()
    evaluation: tuple[Loss, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """What all launches of one run have recorded; fields as of ``RunSummary``."""

    train: tuple[Loss, ...]
    eval: tuple[Evaluation, ...]
    rates: tuple[Rates, ...]


class HistoryFile:
    """File to which the runs of one model append; it need not exist before the first line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines, all at once; an OSError names the file.

        JSON has no NaN; a value that is not finite becomes the string "NaN" or "Infinity".
        """
        text = b"".join(to_json(line, inf_nan_mode="strings") + b"\n" for line in lines)
        with naming(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            descriptor = open_regular(str(self.path), flags)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    text = b"\n" + text  # after a line that a full disk has cut
                file.write(text)

    def curves(self) -> Curves:
        """Return the curves; a run that goes back takes the later steps of earlier runs away.

        Lines that a full disk has cut are left out.
        """
        train: dict[int, float] = {}
        evaluation: dict[int, float] = {}
        for line in self._lines():
            step = line.get("step")
            if not isinstance(step, int):
                continue
            if "loss" in line:
                if train and next(reversed(train)) >= step:
                    train, evaluation = _before(train, step), _before(evaluation, step)
                train[step] = float(line["loss"])
            elif "eval_loss" in line:
                evaluation[step] = float(line["eval_loss"])
        return Curves(tuple(train.items()), tuple(sorted(evaluation.items())))

    def recorded(self, first_step: int) -> Recorded:
        """Return what the launches of the newest run have recorded, from its first step on."""
        train: dict[int, float] = {}
        evaluations: list[Evaluation] = []
        rates: dict[int, tuple[float, float]] = {}
        for line in self._lines():
            match line:
                case {"run": _}:  # which may repeat the evaluation that the one before was ended in
                    newest = max(train, default=0)
                    evaluations = [each for each in evaluations if each[0] < newest]
                case {"step": int(step), "loss": loss} if step >= first_step:
                    if next(reversed(train), 0) >= step:  # a run that goes back
                        train, rates = _before(train, step), _before(rates, step)
                        evaluations = [each for each in evaluations if each[0] < step]
                    train[step] = float(loss)
                    if "rate" in line:
                        rates[step] = (float(line["rate"]), float(line.get("emulated_rate", 0)))
                case {"step": int(step), "eval_loss": loss, **metrics} if step >= first_step:
                    numbers = {name: float(value) for name, value in metrics.items()}
                    evaluations.append((step, float(loss), numbers))
        curve = tuple((step, *each) for step, each in rates.items())
        return Recorded(tuple(train.items()), tuple(evaluations), curve)

    def _lines(self) -> Iterable[Mapping[str, Any]]:
        if not self.path.exists():
            return
        with open(self.path, "rb", opener=open_regular) as file:
            for text in file:
                try:
                    line = from_json(text)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    yield line


def _before(values: Mapping[int, Value], step: int) -> dict[int, Value]:
    return {earlier: value for earlier, value in values.items() if earlier < step}
