"""A file of requests, answered without a service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.host.locks import locked
from waferstream.machine.regions.batch_time import BatchTime
from waferstream.serving.accounts.callers import Anybody
from waferstream.serving.answers import Answers
from waferstream.serving.batches.lines import Fault, checked
from waferstream.serving.batches.running import BatchRun
from waferstream.serving.deployment import Deployment
from waferstream.serving.http.completions import KINDS, Completions


@dataclass(frozen=True)
class Summary:
    """What became of a file of requests."""

    requests: int
    completed: int
    failed: int
    input_tokens: int
    output_tokens: int
    emulated: Emulated | None
    """What the machine takes for those that were completed, if any."""


@dataclass(frozen=True)
class Emulated:
    """The time of a batch on the machine, of requests that are all as the mean one."""

    wafers: int
    resident_s: float
    """With layers that stay on their regions."""
    streamed_s: float
    """With weights that stream, as in training; infinite if no sequence fits beside them."""
    streaming_is_faster_from: int | None
    """Requests from which on it is; None if it never is."""


def answer_file(
    deployment: Deployment, source: Path, out: Path, picture: Path | None = None
) -> Summary:
    """Answer a file of requests as a service would; what ``out`` has is not asked again.

    What is refused goes to a file beside ``out`` that ends in ``.errors.jsonl``.

    Args:
        deployment: The model, and what answers.
        source: The requests.
        out: Gets the answers.
        picture: Gets a drawing of the ways in which the machine answers batches.

    Raises:
        ConfigError: The file is no batch, or ``out`` has answers to another one.
        OSError: A file cannot be read or written.
    """
    requests, faults = checked(source, frozenset(KINDS))
    if faults:
        raise _no_batch(source, faults)
    errors = out.with_suffix(".errors.jsonl")
    _check_distinct(source, (out, errors))
    with _claimed(out), Answers(deployment) as answers:
        run = BatchRun(source, out, errors, partial(Completions(answers).ask, Anybody))
        asyncio.run(run.run())
        if not errors.stat().st_size:
            errors.unlink()
    done, emulated = run.progress, None
    if done.completed:
        time = BatchTime(
            answers.clock.service,
            prompt=-(-done.input_tokens // done.completed),
            answer=-(-done.output_tokens // done.completed),
        )
        emulated = _emulated(time, done.completed)
        if picture is not None:
            _draw(picture, answers.model.name, time, done.completed)
    return Summary(
        requests, done.completed, done.failed, done.input_tokens, done.output_tokens, emulated
    )


def _emulated(time: BatchTime, requests: int) -> Emulated:
    wafers = time.service.layout.num_wafers
    return Emulated(wafers, time.resident_s(requests), time.streamed_s(requests), time.crossover)


def _draw(path: Path, name: str, time: BatchTime, requests: int) -> None:
    from waferstream.reports.service.batch_picture import batch_picture  # noqa: PLC0415  (slow)

    batch_picture(path, name, time, requests)


@contextmanager
def _claimed(out: Path) -> Iterator[None]:
    """Hold a file of answers, which two runs would write at once."""
    lock = out.with_name(f".{out.name}.lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, 0))
        except TimeoutError as error:
            raise ConfigError(
                "one command at a time can write a file of answers",
                code="batch-out-in-use",
                where=str(out),
                value=error.strerror,
                remedy="wait for it, or name another file",
            ) from error
        stack.callback(lock.unlink, missing_ok=True)
        yield


def _check_distinct(source: Path, written: Sequence[Path]) -> None:
    """Raise ConfigError if a file that is written is the one of the requests."""
    for path in written:
        if path.exists() and path.samefile(source):
            raise ConfigError(
                "answers must not replace requests", code="batch-out-is-file", where=str(path)
            )


def _no_batch(source: Path, faults: list[Fault]) -> ConfigError:
    told = (f"line {each.line}: {each.code}, {each.message}" for each in faults)
    return ConfigError(
        "a file of requests must be JSON lines",
        code="batch-file-invalid",
        where=str(source),
        value="; ".join(told),
        rule='{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {...}}',
    )
