"""``waferstream model`` and ``data_processor``: what is registered, and what becomes of it."""

from __future__ import annotations

import inspect
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import Params, new_file
from waferstream.cli.frame.output import show, show_facts, tell_paths
from waferstream.cli.tools.config import stock_files
from waferstream.config.phases import load_params
from waferstream.core.config import Config, load_yaml
from waferstream.core.errors import ConfigError

if TYPE_CHECKING:
    from appliance.input.batches import GlobalBatches

_Model = Annotated[str, Argument(help="name of a model")]
_Processor = Annotated[str, Argument(help="name of a data processor")]


@command("model list")
def list_models() -> int:
    """List the models."""
    from waferstream.workload.models import MODELS  # noqa: PLC0415  (torch)

    variants = _variants()
    return show(
        [
            {"name": name, "class": family.module.__name__, "variants": variants[name]}
            for name, family in sorted(MODELS.items())
        ]
    )


@command("model info", "gpt2")
def summarize_model(model: _Model) -> int:
    """Summarize a model."""
    from waferstream.workload.models import model_family  # noqa: PLC0415  (torch)

    kind = model_family(model, "model").module
    variants = ", ".join(_variants()[model])
    return show_facts({"name": model, **_class(kind), "variants": variants})


def _variants() -> dict[str, list[str]]:
    """Return the params files that come with the program, by model."""
    found = defaultdict[str, list[str]](list)
    for variant, path in stock_files().items():
        data = load_yaml(path)
        found[data["trainer"]["init"]["model"]["name"]].append(variant)
    return found


@command("model describe", "gpt2")
def describe_model(model: _Model) -> int:
    """List the keys of a model."""
    from waferstream.workload.models import model_family  # noqa: PLC0415  (torch)

    return _show_keys(model_family(model, "model").config)


@command("model init_checkpoint", "params.yaml -o initial.mdl")
def init_checkpoint(
    params: Params,
    out: Annotated[
        Path, Option("-o", "--out", help="file, or folder for checkpoint_0.mdl")
    ] = Path(),
) -> int:
    """Write the initial weights of a params file."""
    init = load_params(params).trainer.init
    path = out / "checkpoint_0.mdl" if out.is_dir() else out
    new_file(path, "name another file with -o")
    from waferstream.training.setup.model import make_model  # noqa: PLC0415  (torch)
    from waferstream.workload.weight_files import write_checkpoint  # noqa: PLC0415

    write_checkpoint(path, make_model(init).state_dict(), {"global_step": 0, "seed": init.seed})
    return tell_paths(path)


@command("data_processor list")
def list_processors() -> int:
    """List the data processors."""
    from waferstream.workload.data import DATA_PROCESSORS  # noqa: PLC0415  (torch)

    kinds = sorted(DATA_PROCESSORS.items())
    return show([{"name": name, "about": _class(kind)["about"]} for name, kind in kinds])


@command("data_processor info", "TextDataProcessor")
def summarize_processor(data_processor: _Processor) -> int:
    """Summarize a data processor."""
    from waferstream.workload.data import processor_class  # noqa: PLC0415  (torch)

    kind = processor_class(data_processor, "data_processor")
    required = ", ".join(name for name, key in kind.model_fields.items() if key.is_required())
    return show_facts({"name": kind.__name__, **_class(kind), "required": required})


@command("data_processor describe", "TextDataProcessor")
def describe_processor(data_processor: _Processor) -> int:
    """List the keys of a data processor."""
    from waferstream.workload.data import processor_class  # noqa: PLC0415  (torch)

    return _show_keys(processor_class(data_processor, "data_processor"))


def _class(kind: Any) -> dict[str, str]:
    """Return the import path of a class, and the first line of its docstring."""
    about = (inspect.getdoc(kind) or "").split("\n")[0]
    return {"class": f"{kind.__module__}.{kind.__name__}", "about": about}


def _show_keys(config: type[Config]) -> int:
    """Print name, type and default of the keys of a configuration."""
    return show(
        [
            {
                "key": field.alias or name,
                "type": _type_name(field.annotation),
                "default": "required" if field.is_required() else field.get_default(),
            }
            for name, field in config.model_fields.items()
        ]
    )


def _type_name(annotation: Any) -> str:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.replace("typing.", "")


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
    from appliance.input.batches import GlobalBatches  # noqa: PLC0415  (torch)
    from waferstream.workload.data import build_source  # noqa: PLC0415

    trainer = load_params(params).trainer
    rows = []
    for where, config in trainer.dataloaders():
        batches = GlobalBatches(partial(build_source, config.dump(), where), seed=trainer.init.seed)
        count, distance = _epochs_of(batches.source, steps_per_epoch, where)
        for epoch in range(num_epochs):
            steps = range(epoch * distance, epoch * distance + count)
            for measured in _measured(batches, steps, sampling_frequency):
                rows.append({"loader": where, "epoch": epoch, **measured})
    return show(rows)


def _epochs_of(source: Any, steps: int | None, where: str) -> tuple[int, int]:
    """Return the batches to read of an epoch, and those between the first ones of two epochs.

    A loader without random access is read on where it has come to.
    """
    from appliance.input.batches import is_read_by_step  # noqa: PLC0415  (torch)

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


def _measured(
    batches: GlobalBatches, steps: Sequence[int], every: int | None
) -> list[dict[str, float]]:
    """Read the steps of one epoch; return the rates of each ``every`` of them, or of all."""
    rows, done, num_bytes, samples = [], 0, 0, 0
    start_s = time.perf_counter()
    for step, place in enumerate(steps, start=1):
        _, leaves = batches.structured(place)
        num_bytes += sum(tensor.nbytes for tensor in leaves)
        samples += leaves[0].shape[0] if leaves else 0
        if step == len(steps) or (every and step % every == 0):
            elapsed_s = time.perf_counter() - start_s
            row: dict[str, float] = {"steps": step - done, "seconds": round(elapsed_s, 4)}
            read = {"batches/s": step - done, "samples/s": samples, "MB/s": num_bytes / 1e6}
            rows.append(row | {name: round(n / elapsed_s, 1) for name, n in read.items()})
            done, num_bytes, samples, start_s = step, 0, 0, time.perf_counter()
    return rows
