"""A file of requests, answered without a service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from waferstream.core.errors import ConfigError
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


def answer_file(deployment: Deployment, source: Path, out: Path) -> Summary:
    """Answer a file of requests as a service would; what ``out`` has is not asked again.

    What is refused goes to a file beside ``out`` that ends in ``.errors.jsonl``.

    Raises:
        ConfigError: The file is no batch, or ``out`` has answers to another one.
        OSError: A file cannot be read or written.
    """
    requests, faults = checked(source, frozenset(KINDS))
    if faults:
        raise _no_batch(source, faults)
    errors = out.with_suffix(".errors.jsonl")
    for path in (out, errors):
        if path.exists() and path.samefile(source):
            raise ConfigError(
                "answers must not replace requests", code="batch-out-is-file", where=str(path)
            )
    with Answers(deployment) as answers:
        run = BatchRun(source, out, errors, partial(Completions(answers).ask, Anybody))
        asyncio.run(run.run())
    if not errors.stat().st_size:
        errors.unlink()
    done = run.progress
    return Summary(requests, done.completed, done.failed, done.input_tokens, done.output_tokens)


def _no_batch(source: Path, faults: list[Fault]) -> ConfigError:
    told = (f"line {each.line}: {each.code}, {each.message}" for each in faults)
    return ConfigError(
        "a file of requests must be JSON lines",
        code="batch-file-invalid",
        where=str(source),
        value="; ".join(told),
        rule='{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {...}}',
    )
