"""A file of requests, answered without a service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.machine.regions import BatchTime
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
    with Answers(deployment) as answers:
        run = BatchRun(source, out, errors, partial(Completions(answers).ask, Anybody))
        asyncio.run(run.run())
        done, clock, name = run.progress, answers.clock, answers.model.name
    if not errors.stat().st_size:
        errors.unlink()
    emulated = None
    if count := done.completed:
        means = (-(-tokens // count) for tokens in (done.input_tokens, done.output_tokens))
        time = BatchTime(clock.service, *means)
        emulated = _emulated(time, count)
        if picture is not None:
            from waferstream.reports.service import batch_picture  # noqa: PLC0415  (slow)

            batch_picture.batch_picture(picture, name, time, count)
    tokens_of_all = done.input_tokens, done.output_tokens
    return Summary(requests, done.completed, done.failed, *tokens_of_all, emulated)


def _emulated(time: BatchTime, requests: int) -> Emulated:
    return Emulated(
        time.service.layout.num_wafers,
        time.resident_s(requests),
        time.streamed_s(requests),
        time.crossover,
    )


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
