"""Run targets on many inputs, and keep what is not a typed error, with its input."""

from __future__ import annotations

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from types import FrameType
from typing import Any

from waferstream.core.errors import WaferStreamError

_ROOT = Path(__file__).parents[2]
_SHOWN_BYTES = 2000


class TooSlowError(BaseException):
    """An input that takes longer than the limit; no handler of errors catches it."""


@dataclass(frozen=True)
class Target:
    """A parser, and a source of inputs for it.

    ``typed`` are the errors that it may raise beside those of users; ``share`` of all inputs, in
    thousandths, are for this target. An input that takes longer than ``limit_s`` is a finding.
    """

    name: str
    share: int
    make: Callable[[Random], bytes]
    read: Callable[[bytes], object]
    typed: tuple[type[Exception], ...] = ()
    limit_s: float = 5.0


@dataclass
class Outcome:
    """What a target has made of its inputs."""

    name: str
    inputs: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Inputs by the code of the error."""

    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Other errors by kind and place: how many, and the first input."""

    seconds: float = 0.0


def through_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes through a file."""

    def write_and_read(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return write_and_read


def run_target(target: Target, num_inputs: int, seed: int) -> Outcome:
    """Feed ``num_inputs`` to a target; the same seed gives the same inputs."""
    random = Random(f"{seed} {target.name}")
    outcome = Outcome(target.name)
    start_s = perf_counter()
    for _ in range(num_inputs):
        try_input(target, target.make(random), outcome)
    outcome.seconds = perf_counter() - start_s
    return outcome


def try_input(target: Target, content: bytes, outcome: Outcome) -> None:
    """Feed one input to a target, and note how it ends."""
    outcome.inputs += 1
    try:
        with _limited(target.limit_s):
            target.read(content)
    except WaferStreamError as error:
        outcome.refused[error.code] += 1
    except target.typed as error:
        outcome.refused[type(error).__name__] += 1
    except (Exception, TooSlowError) as error:
        _note(error, content, outcome)
    else:
        outcome.accepted += 1


def shares(targets: Sequence[Target], num_inputs: int) -> Iterator[tuple[Target, int]]:
    """Yield each target with its number of inputs, at least one."""
    whole = sum(target.share for target in targets)
    for target in targets:
        yield target, max(1, num_inputs * target.share // whole)


def _note(error: BaseException, content: bytes, outcome: Outcome) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_ROOT)]
    last = next((f for f in reversed(ours) if ".venv" not in f.filename), frames[-1])
    kind = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    finding = outcome.findings.setdefault(
        kind, {"count": 0, "error": str(error)[:300], "input": content[:_SHOWN_BYTES].hex()}
    )
    finding["count"] += 1


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Interrupt the block when it takes longer than a limit."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"longer than {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
