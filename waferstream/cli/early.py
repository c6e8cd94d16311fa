"""What is wrong with a run that needs no torch to be seen: it is told within a second."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waferstream.config.params import Mode, Params
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.plugins import Plugins
from waferstream.core.program.micro_batches import check_systems
from waferstream.core.stores import store_of
from waferstream.workload.data_files import find_files
from waferstream.workload.known_keys import check_keys

_MODEL = "trainer.init.model"
_TEXT = "TextDataProcessor"
_STDLIB = "stdlib"


def check_sections(params: Params) -> None:
    """Check name, keys and heads of the model, and the keys of data loaders.

    Raises:
        ConfigError: One of them is wrong.
    """
    model = params.trainer.init.model.dump()
    _check_name(model)
    check_keys(model, model.get("name"), _MODEL)
    _check_heads(model)
    for where, loader in params.trainer.dataloaders():
        section = loader.dump()
        check_keys(section, section.get("data_processor"), where)


def check_run(params: Params, mode: Mode) -> None:
    """Check what a run on this host reads and writes, before it makes anything.

    Raises:
        WaferStreamError: A batch is smaller than the number of systems, data or a checkpoint are
            not there, or the model folder cannot be written to.
    """
    init, fit = params.trainer.init, params.trainer.fit
    if mode.startswith("train") and fit is not None:
        if init.backend.backend_type == "CSX":
            check_systems(fit.train_dataloader.batch_size, init.backend.cluster_config.num_csx)
        _check_data(fit.train_dataloader.dump())
        _check_checkpoint(fit.ckpt_path)
        _check_folder(init.model_dir)
    if mode == "eval" and (validation := params.trainer.validation) is not None:
        _check_data(validation.val_dataloader.dump())
        _check_checkpoint(validation.ckpt_path)


def _check_name(model: Mapping[str, Any]) -> None:
    name, known = model.get("name"), Plugins[Any]("models")
    if isinstance(name, str) and model.get("class") is None and name not in known:
        raise ConfigError(
            "name must be that of a model",
            code="unknown-model",
            where=_MODEL,
            value=name,
            rule=known.rule,
            remedy=known.remedy(name),
        )


def _check_heads(model: Mapping[str, Any]) -> None:
    """Refuse heads that do not divide the width that a model is declared with."""
    match model:
        case {"name": "gpt2" | "gpt3" | "llama" | "bert", "hidden_size": int(width)} if (
            "attention_inner_dim" not in model
        ):
            heads = model.get("num_heads")
            if isinstance(heads, int) and heads > 0 and width % heads:
                raise ConfigError(
                    "value of 'num_heads' is not allowed",
                    code="not-allowed",
                    where=_MODEL,
                    value=heads,
                    rule=f"num_heads must divide hidden_size, which is {width}",
                    remedy=f"one of {', '.join(map(str, _divisors(width)))}",
                )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, min(number, 256) + 1) if number % each == 0]


def _check_data(loader: Mapping[str, Any]) -> None:
    """Refuse text that is not there, as the processor of texts would later."""
    path = loader.get("path")
    if loader.get("data_processor") == _TEXT and isinstance(path, str) and path != _STDLIB:
        find_files(path, loader.get("suffixes", (".txt", ".md", ".py")))


def _check_checkpoint(path: object) -> None:
    if isinstance(path, Path) and store_of(path) is None and not path.exists():
        raise CheckpointError(
            "the checkpoint cannot be read",
            code="checkpoint-not-readable",
            where=str(path),
            value=os.strerror(2),
            remedy=_neighbours(path),
        )


def _neighbours(path: Path) -> str:
    """Return which checkpoints there are in the folder of one that is not there."""
    found = sorted(each.name for each in path.parent.glob("*.mdl")) if path.parent.is_dir() else []
    return f"one of {', '.join(found)}" if found else f"{path.parent} has no checkpoint"


def _check_folder(folder: Path) -> None:
    """Refuse a model folder that is a file, or that lies where one may not write."""
    if store_of(folder) is not None:
        return
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return
    raise ConfigError(
        "model_dir must be writable",
        code="model-dir-not-writable",
        where=str(folder),
        value=f"{there} is {'read-only' if there.is_dir() else 'no folder'}",
        rule="a folder, or a path at which one can be made",
        remedy="name another one with --model_dir",
    )
