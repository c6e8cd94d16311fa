"""Convert the legacy layout (train_input, eval_input, model, optimizer, runconfig).

Only places and names change; values are validated afterwards, in the Trainer layout.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from waferstream.config import legacy_keys as keys
from waferstream.config.key_paths import KeyPath
from waferstream.config.optimizer import Optimizer
from waferstream.config.overrides import put
from wsc.core.config_errors import unknown
from wsc.core.errors import ConfigError

SECTIONS = ("train_input", "eval_input", "model", "optimizer", "sparsity", "runconfig", "wandb")


def is_legacy(data: Mapping[str, Any]) -> bool:
    """Whether a file is written in the legacy layout."""
    return "trainer" not in data and any(section in data for section in SECTIONS)


def convert_legacy(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same configuration in the Trainer layout, by the table of section 2.1.

    ``where`` names the file. Raises ConfigError for a section or ``runconfig`` key that the
    table does not have, and for one that WaferStream does not support.
    """
    data = copy.deepcopy(dict(data))
    _refuse_unknown(data, SECTIONS, "", where)
    sections = {name: _section(data, name, where) for name in SECTIONS if name != "sparsity"}
    if sections["wandb"]:
        raise _not_supported("wandb", where)
    for name, unsupported in keys.NOT_SUPPORTED.items():
        for key in unsupported:
            if sections[name].pop(key, None):
                raise _not_supported(f"{name}.{key}", where)

    trainer: dict[str, Any] = {"init": {}}
    if "sparsity" in data:
        trainer["init"]["sparsity"] = data["sparsity"]
    _move_inputs(trainer, sections["train_input"], sections["eval_input"])
    _move_keys(trainer, sections["model"], keys.MODEL)
    trainer["init"]["model"] = sections["model"]
    _move_optimizer(trainer, sections["optimizer"], where)
    _move_runconfig(trainer, sections["runconfig"], where)
    return {"trainer": trainer}


def _section(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    section = data.get(name)
    if section is not None and not isinstance(section, dict):
        raise ConfigError(f"{name!r} holds no mapping", where=where, value=repr(section))
    return section or {}


def _move_keys(
    trainer: dict[str, Any], section: dict[str, Any], places: Mapping[str, KeyPath]
) -> None:
    """Take the keys of ``places`` out of a section; null meant "not set" in this layout."""
    for key, path in places.items():
        if (value := section.pop(key, None)) is not None:
            put(trainer, path, value)


def _move_inputs(
    trainer: dict[str, Any], train: dict[str, Any], evaluation: dict[str, Any]
) -> None:
    for section, flags in ((train, "ScopedTrainFlags"), (evaluation, "ScopedValidateFlags")):
        if "micro_batch_size" in section:
            path = ("init", "callbacks", flags, keys.MICRO_BATCH_SIZE)
            put(trainer, path, section.pop("micro_batch_size"))
    if train:
        trainer["fit"] = {"train_dataloader": train}
    if evaluation:
        if train:
            trainer["fit"]["val_dataloader"] = evaluation
        trainer["validate"] = {"val_dataloader": evaluation}
        trainer["validate_all"] = {"val_dataloaders": evaluation}


def _move_optimizer(trainer: dict[str, Any], section: dict[str, Any], where: str) -> None:
    if not section:
        return
    _move_keys(trainer, section, keys.OPTIMIZER)
    if section.pop("log_summaries", False):
        put(trainer, ("init", "precision", "log_loss_scale"), True)
        _add_callback(trainer, {"ComputeNorm": {}})
    if (rate := section.pop("learning_rate", None)) is not None:
        trainer["init"]["schedulers"] = _schedulers(rate, where)
    kind = section.pop("optimizer_type", None)
    if kind is None:
        raise ConfigError("key 'optimizer.optimizer_type' is missing", where=where)
    trainer["init"]["optimizer"] = {_class_in_any_case(str(kind)): section}


def _class_in_any_case(name: str) -> str:
    known = (optimizer.__name__ for optimizer in Optimizer.__subclasses__())
    return next((kind for kind in known if kind.lower() == name.lower()), name)


def _add_callback(trainer: dict[str, Any], entry: dict[str, Any]) -> None:
    trainer["init"].setdefault("callbacks", []).append(entry)


def _schedulers(rate: Any, where: str) -> list[dict[str, Any]]:
    """``learning_rate`` as a number, one scheduler, or a list of them."""
    if not isinstance(rate, list | dict):
        return [{"ConstantLR": {"learning_rate": rate}}]
    entries = [_scheduler(entry, where) for entry in (rate if isinstance(rate, list) else [rate])]
    return entries if len(entries) == 1 else [{"SequentialLR": {"schedulers": entries}}]


def _scheduler(entry: Any, where: str) -> dict[str, Any]:
    """``{scheduler: Linear, ...}`` as ``{LinearLR: {...}}``."""
    if not isinstance(entry, dict) or not isinstance(entry.get("scheduler"), str):
        raise ConfigError(
            "an entry of 'optimizer.learning_rate' names no scheduler",
            where=where,
            value=repr(entry),
            rule="a number, or mappings with the key 'scheduler'",
        )
    arguments = dict(entry)
    name = arguments.pop("scheduler").removesuffix("LR")
    return {f"{name}LR": arguments}


def _move_runconfig(trainer: dict[str, Any], section: dict[str, Any], where: str) -> None:
    for key in keys.GPU_ONLY:
        section.pop(key, None)
    if (path := section.pop("checkpoint_path", None)) is not None:
        for mode, key in keys.CHECKPOINT_PATH.items():
            if mode in trainer:
                trainer[mode][key] = path
    if section.pop("check_loss_values", True) is False:
        _add_callback(trainer, {"CheckLoss": None})
    known = [*keys.RUNCONFIG, *keys.GPU_ONLY, "checkpoint_path", "check_loss_values"]
    _refuse_unknown(section, known, "runconfig.", where)
    _move_keys(trainer, section, keys.RUNCONFIG)


def _refuse_unknown(data: Mapping[str, Any], known: Sequence[str], prefix: str, where: str) -> None:
    for key in data:
        if key not in known:
            raise unknown(f"key {f'{prefix}{key}'!r}", "keys", str(key), known, where)


def _not_supported(key: str, where: str) -> ConfigError:
    return ConfigError(
        f"{key!r} is known, but not supported yet", where=where, remedy="remove the key"
    )
