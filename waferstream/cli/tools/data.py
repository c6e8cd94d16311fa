"""``waferstream data_processor``: list, info, describe, benchmark."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from appliance.input.batches import GlobalBatches, is_read_by_step
from waferstream.cli.frame.output import show
from waferstream.cli.tools.command import Command, argument, field_rows, first_line
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.workload.data import DATA_PROCESSORS, build_source, processor_class


def _list(_given: argparse.Namespace) -> int:
    return show(
        [
            {"name": name, "about": first_line(kind)}
            for name, kind in sorted(DATA_PROCESSORS.items())
        ],
    )


def _info(given: argparse.Namespace) -> int:
    kind = processor_class(given.data_processor, "data_processor")
    summary = {
        "name": kind.__name__,
        "class": f"{kind.__module__}.{kind.__name__}",
        "about": first_line(kind),
        "required": ", ".join(n for n, f in kind.model_fields.items() if f.is_required()),
    }
    return show([{"field": key, "value": value} for key, value in summary.items()])


def _describe(given: argparse.Namespace) -> int:
    return show(field_rows(processor_class(given.data_processor, "data_processor")))


def _benchmark(given: argparse.Namespace) -> int:
    """Read every data loader of a params file in this process, and show its rates."""
    for name in ("num_epochs", "steps_per_epoch", "sampling_frequency"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} must be at least 1", code="out-of-range", value=value)
    trainer = load_params(given.params).trainer
    rows = []
    for where, config in trainer.dataloaders():
        batches = GlobalBatches(partial(build_source, config.dump(), where), seed=trainer.init.seed)
        count, distance = _epochs_of(batches.source, given.steps_per_epoch, where)
        for epoch in range(given.num_epochs):
            steps = range(epoch * distance, epoch * distance + count)
            rows += _epoch(batches, steps, given.sampling_frequency, where, epoch)
    return show(rows)


def _epochs_of(source: Any, steps: int | None, where: str) -> tuple[int, int]:
    """Return the batches to read of an epoch, and those between the first ones of two epochs.

    A loader without random access is read on where it has come to.
    """
    try:
        length = len(source)
    except TypeError as error:
        if steps is None:
            raise ConfigError(
                "a loader without a length needs --steps_per_epoch",
                code="loader-without-length",
                where=where,
                value=type(source).__name__,
            ) from error
        length = steps
    count = min(steps or length, length)
    return count, length if is_read_by_step(source) else count


def _epoch(
    batches: GlobalBatches, steps: Sequence[int], every: int | None, where: str, epoch: int
) -> list[dict[str, Any]]:
    """Read the steps of one epoch; return a row for each ``every`` of them, or one for all."""
    rows, done, num_bytes, samples = [], 0, 0, 0
    start_s = time.perf_counter()
    for step, place in enumerate(steps, start=1):
        _, leaves = batches.structured(place)
        num_bytes += sum(tensor.nbytes for tensor in leaves)
        samples += leaves[0].shape[0] if leaves else 0
        if step == len(steps) or (every and step % every == 0):
            elapsed_s = time.perf_counter() - start_s
            rows.append(
                {
                    "loader": where,
                    "epoch": epoch,
                    "steps": step - done,
                    "seconds": round(elapsed_s, 4),
                    "batches/s": round((step - done) / elapsed_s, 1),
                    "samples/s": round(samples / elapsed_s, 1),
                    "MB/s": round(num_bytes / elapsed_s / 1e6, 1),
                }
            )
            done, num_bytes, samples, start_s = step, 0, 0, time.perf_counter()
    return rows


_PROCESSOR = argument("data_processor", help="name of a data processor")

COMMANDS = (
    Command("list", "list the data processors", _list),
    Command("info", "summarize a data processor", _info, (_PROCESSOR,)),
    Command("describe", "list the keys of a data processor", _describe, (_PROCESSOR,)),
    Command(
        "benchmark",
        "measure how fast this host reads the data of a params file",
        _benchmark,
        (
            argument("params", type=Path, help="params file"),
            argument("--num_epochs", type=int, default=1, help="epochs (default: 1)"),
            argument("--steps_per_epoch", type=int, help="batches per epoch (default: all)"),
            argument("--sampling_frequency", type=int, help="show a row every so many batches"),
        ),
    ),
)
