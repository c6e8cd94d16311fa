"""Weights of a training as transformers reads them, beside its last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.reader import Reader
from waferstream.config.params import InitConfig
from waferstream.config.sections.callbacks import Lora
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.units import GIB
from waferstream.host.files import write_json
from waferstream.workload.hugging_face import CONVERSIONS, Conversion, safetensors, write_weights
from waferstream.workload.special_tokens import SPECIAL_TOKENS, with_special_tokens

log = logging.getLogger("waferstream")

FILE_NAME, CONFIG_NAME = "model.safetensors", "config.json"

_MOST_BYTES = 2 * GIB
"""Weights that are exported unasked: this process holds them twice while they are converted."""

_WRITER = "writer", "waferstream"
"""Mark of a file that may be replaced."""


def check_export(init: InitConfig) -> None:
    """Raise ConfigError where an export is asked for, and transformers has no such model."""
    if init.checkpoint.export is True and _conversion(init) is None:
        raise ConfigError(
            "the model cannot be exported",
            code="model-not-exportable",
            where="trainer.init.checkpoint.export",
            value=init.model.name,
            rule="a model of transformers with the same keys (waferstream checkpoint list)",
            remedy="leave the key out: the checkpoint has all weights",
        )


def export_checkpoint(checkpoint: Path, init: InitConfig) -> None:
    """Write the weights of a checkpoint and their config.json beside it, unless they are too large.

    What cannot be written is told: the run has its checkpoint.
    """
    asked = init.checkpoint.export
    conversion = None if asked is False else _conversion(init)
    if conversion is None:
        return
    try:
        reader = Reader(checkpoint)
        if asked == "auto" and (reason := _cost(reader)):
            log.info("No %s: %s (trainer.init.checkpoint.export)", FILE_NAME, reason)
            return
        _write(reader, conversion, init.model.dump())
    except (CheckpointError, ConfigError, OSError) as error:
        log.warning("No %s: %s", FILE_NAME, error)
        return
    log.info("Wrote the weights of %s to %s for transformers", checkpoint.name, FILE_NAME)


def _conversion(init: InitConfig) -> Conversion | None:
    """Return what converts a model to transformers; None if nothing does, as for adapters."""
    if init.callback(Lora) is not None:
        return None
    section = init.model.dump()
    for name in CONVERSIONS:
        with suppress(ConfigError):
            conversion = CONVERSIONS[name]
            if conversion.name == section.get("name"):
                conversion.configuration(section)
                return conversion
    return None


def _cost(reader: Reader) -> str | None:
    """Return why an export costs too much, None if it does not."""
    num_bytes = sum(reader.tensors[f"{MODEL}.{name}"].num_bytes for name in reader.names(MODEL))
    if num_bytes > _MOST_BYTES:
        return f"the weights have {num_bytes / GIB:.1f} GiB, more than {_MOST_BYTES / GIB:.0f}"
    if num_bytes > reader.path.stat().st_size:
        return "the weights take more than the checkpoint, which leaves out zeros"
    return None


def _write(reader: Reader, conversion: Conversion, section: Mapping[str, Any]) -> None:
    """Write weights and config.json; CheckpointError if either cannot be."""
    folder = reader.path.parent
    _check_own(folder)
    names = reader.names(MODEL)
    ours = {name: torch.from_numpy(reader[f"{MODEL}.{name}"]) for name in names}
    theirs = conversion.to_theirs(ours, section)
    ids = reader.objects.get(SPECIAL_TOKENS, {})
    step = str(reader.objects.get("global_step"))
    write_weights(folder / FILE_NAME, theirs, dict([_WRITER]) | {"global_step": step})
    write_json(folder / CONFIG_NAME, with_special_tokens(conversion.configuration(section), ids))


def _check_own(folder: Path) -> None:
    """Raise CheckpointError if another program has written the files that are to be replaced."""
    files = [folder / name for name in (FILE_NAME, CONFIG_NAME) if (folder / name).exists()]
    key, writer = _WRITER
    if files and (not files[0].name == FILE_NAME or _metadata(files[0]).get(key) != writer):
        raise CheckpointError(
            "files of another program are left as they are",
            code="file-exists",
            where=str(files[0]),
            remedy="train in a folder of its own (--model_dir), or convert the checkpoint",
        )


def _metadata(path: Path) -> Mapping[str, str]:
    try:
        with safetensors().safe_open(path, "pt") as file:
            return file.metadata() or {}
    except Exception:  # the package has an error of its own
        return {}
