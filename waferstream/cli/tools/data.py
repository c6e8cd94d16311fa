"""``waferstream data_processor``: list, info, describe, benchmark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from typer import Argument, Option

from appliance.input.batches import GlobalBatches, is_read_by_step
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.files import Params
from waferstream.cli.frame.output import show
from waferstream.cli.tools.described import field_rows, first_line
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.workload.data import DATA_PROCESSORS, build_source, processor_class

_Processor = Annotated[str, Argument(help="name of a data processor")]


@command("data_processor list")
def list_processors() -> int:
    """List the data processors."""
    return show(
        [
            {"name": name, "about": first_line(kind)}
            for name, kind in sorted(DATA_PROCESSORS.items())
        ],
    )


@command("data_processor info", "TextDataProcessor")
def summarize(data_processor: _Processor) -> int:
    """Summarize a data processor."""
    kind = processor_class(data_processor, "data_processor")
    summary = {
        "name": kind.__name__,
        "class": f"{kind.__module__}.{kind.__name__}",
        "about": first_line(kind),
        "required": ", ".join(n for n, f in kind.model_fields.items() if f.is_required()),
    }
    return show([{"field": key, "value": value} for key, value in summary.items()])


@command("data_processor describe", "TextDataProcessor")
def describe(data_processor: _Processor) -> int:
    """List the keys of a data processor."""
    return show(field_rows(processor_class(data_processor, "data_processor")))


@command("data_processor benchmark", "params.yaml --steps_per_epoch 100")
def benchmark(
    params: Params,
    num_epochs: Annotated[int, Option(min=1, help="epochs")] = 1,
    steps_per_epoch: Annotated[
        int | None, Option(min=1, help="batches per epoch (default: all)")
    ] = None,
    sampling_frequency: Annotated[
        int | None, Option(min=1, help="show a row every so many batches")
    ] = None,
) -> int:
    """Measure how fast this host reads the data of a params file, in this process."""
    trainer = load_params(params).trainer
    rows = []
    for where, config in trainer.dataloaders():
        batches = GlobalBatches(partial(build_source, config.dump(), where), seed=trainer.init.seed)
        count, distance = _epochs_of(batches.source, steps_per_epoch, where)
        for epoch in range(num_epochs):
            steps = range(epoch * distance, epoch * distance + count)
            rows += _epoch(batches, steps, sampling_frequency, where, epoch)
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
