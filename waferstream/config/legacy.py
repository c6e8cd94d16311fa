"""Convert the legacy layout (train_input, eval_input, model, optimizer, runconfig).

Only key paths change; values are validated afterwards in the Trainer layout.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from waferstream.config.overrides import (
    BACKEND,
    CALLBACKS,
    CHECKPOINT,
    CLUSTER,
    GLOBAL_FLAGS,
    INIT,
    LOGGERS,
    LOGGING,
    LOOP,
    PRECISION,
    KeyPath,
    put,
)
from waferstream.config.sections.optimizer import optimizer_name
from waferstream.core.config_errors import unknown
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import SCHEDULES

MICRO_BATCH_SIZE = "csx.performance.micro_batch_size"


def _same(parent: KeyPath, names: str) -> dict[str, KeyPath]:
    return {name: (*parent, name) for name in names.split()}


def _flags(group: str, names: str) -> dict[str, KeyPath]:
    return {name: (*GLOBAL_FLAGS, f"csx.{group}.{name}") for name in names.split()}


MODEL: dict[str, KeyPath] = {
    "mixed_precision": (*PRECISION, "enabled"),
    "fp16_type": (*PRECISION, "fp16_type"),
    "lora_params": (*CALLBACKS, "Lora", "lora_params"),
    "selective_grad": (*CALLBACKS, "SelectiveGrad", "selective_grads"),
}
"""Keys of ``model`` that leave the section; all others go to ``init.model``."""

OPTIMIZER: dict[str, KeyPath] = {
    **_same(
        PRECISION,
        "loss_scaling_factor initial_loss_scale steps_per_increase min_loss_scale max_loss_scale"
        " max_gradient_norm max_gradient_value",
    ),
    **_same(LOOP, "grad_accum_steps"),
}
"""Keys of ``optimizer`` that are not arguments of its class."""

RUNCONFIG: dict[str, KeyPath] = {
    "target_device": (*BACKEND, "backend_type"),
    **_same(BACKEND, "compile_dir compile_only validate_only"),
    **_same(
        CLUSTER,
        "num_csx mgmt_address mgmt_namespace credentials_path mount_dirs python_paths"
        " num_workers_per_csx cbcore_image job_labels job_priority job_time_sec"
        " disable_version_check",
    ),
    "num_wgt_servers": (*CLUSTER, "max_wgt_servers"),
    "num_act_servers": (*CLUSTER, "max_act_per_csx"),
    **_same(INIT, "model_dir seed"),
    **_same(PRECISION, "precision_opt_level"),
    **_same(LOOP, "num_steps max_steps num_epochs steps_per_epoch eval_frequency eval_steps"),
    "checkpoint_steps": (*CHECKPOINT, "steps"),
    **_same(
        CHECKPOINT,
        "disable_strict_checkpoint_loading autoload_last_checkpoint save_initial_checkpoint",
    ),
    "max_checkpoints": (*CALLBACKS, "KeepNCheckpoints", "n"),
    **_same((*CALLBACKS, "LoadCheckpointStates"), "load_checkpoint_states"),
    **_same((*CALLBACKS, "DebugArgsPath"), "debug_args_path"),
    "logging": (*LOGGING, "log_level"),
    **_same(LOGGING, "log_steps wsc_log_level enable_act_frequency"),
    **_flags("performance", "transfer_processes"),
    **_flags(
        "debug",
        "ini debug_args retrace_every_iteration lazy_initialization log_initialization drop_data"
        " fabric_type_blacklist compile_crd_memory_gi execute_crd_memory_gi wrk_memory_gi"
        " act_memory_gi cmd_memory_gi wgt_memory_gi chf_memory_gi",
    ),
    **_same((*LOGGERS, "TensorBoardLogger"), "summary_dir legacy_event_dirs"),
}
"""Keys of ``runconfig`` that move and keep their value."""

CHECKPOINT_PATH: dict[str, str] = {
    "fit": "ckpt_path",
    "validate": "ckpt_path",
    "validate_all": "ckpt_paths",
}
"""Where ``runconfig.checkpoint_path`` goes: the key in each mode's section."""

GPU_ONLY = (
    "enable_distributed",
    "main_process_id",
    "dist_backend",
    "init_method",
    "sync_batchnorm",
)
"""Keys of ``runconfig`` without meaning on a CSX; dropped, as by the vendor's client."""

NOT_SUPPORTED: dict[str, tuple[str, ...]] = {
    "model": ("compression",),
    "runconfig": (
        "op_profiler_config",
        "dump_activations",
        "hf_cache_dir",
        "experimental",
    ),
}
"""Keys by section that need callbacks which WaferStream does not have."""


SECTIONS = ("train_input", "eval_input", "model", "optimizer", "sparsity", "runconfig", "wandb")


def is_legacy(data: Mapping[str, Any]) -> bool:
    """Tell whether ``data`` is in the legacy layout."""
    return "trainer" not in data and any(section in data for section in SECTIONS)


def convert_legacy(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert a legacy configuration to the Trainer layout.

    Args:
        data: Content of the file.
        where: Name of the file, for errors.

    Raises:
        ConfigError: a section or a ``runconfig`` key is unknown or not supported.
    """
    data = copy.deepcopy(dict(data))
    _refuse_unknown(data, SECTIONS, "", where)
    sections = {name: _section(data, name, where) for name in SECTIONS if name != "sparsity"}
    if sections["wandb"]:
        raise _not_supported("wandb", where)
    for name, unsupported in NOT_SUPPORTED.items():
        for key in unsupported:
            if sections[name].pop(key, None):
                raise _not_supported(f"{name}.{key}", where)

    trainer: dict[str, Any] = {"init": {}}
    if "sparsity" in data:
        _move_sparsity(trainer, data["sparsity"])
    _move_inputs(trainer, sections["train_input"], sections["eval_input"])
    _move_keys(trainer, sections["model"], MODEL)
    trainer["init"]["model"] = sections["model"]
    _move_optimizer(trainer, sections["optimizer"], where)
    _move_runconfig(trainer, sections["runconfig"], where)
    return {"trainer": trainer}


def _move_sparsity(trainer: dict[str, Any], section: Any) -> None:
    """Move the section; its key ``add_summaries`` is a callback now."""
    if isinstance(section, dict) and section.pop("add_summaries", False):
        _add_callback(trainer, {"LogSparsity": {}})
    trainer["init"]["sparsity"] = section


def _section(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    section = data.get(name)
    if section is not None and not isinstance(section, dict):
        raise ConfigError(
            f"{name!r} must be a mapping", code="not-a-mapping", where=where, value=repr(section)
        )
    return section or {}


def _move_keys(
    trainer: dict[str, Any], section: dict[str, Any], places: Mapping[str, KeyPath]
) -> None:
    """Move the keys of ``places`` out of a section; null means "not set" in this layout."""
    for key, path in places.items():
        if (value := section.pop(key, None)) is not None:
            put(trainer, path, value)


def _move_inputs(
    trainer: dict[str, Any], train: dict[str, Any], evaluation: dict[str, Any]
) -> None:
    for section, flags in ((train, "ScopedTrainFlags"), (evaluation, "ScopedValidateFlags")):
        if "micro_batch_size" in section:
            path = ("init", "callbacks", flags, MICRO_BATCH_SIZE)
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
    _move_keys(trainer, section, OPTIMIZER)
    if section.pop("log_summaries", False):
        put(trainer, ("init", "precision", "log_loss_scale"), True)
        _add_callback(trainer, {"ComputeNorm": {}})
    if (rate := section.pop("learning_rate", None)) is not None:
        trainer["init"]["schedulers"] = _schedulers(rate, where)
    kind = section.pop("optimizer_type", None)
    if kind is None:
        raise ConfigError(
            "optimizer must have the key 'optimizer_type'", code="missing-key", where=where
        )
    trainer["init"]["optimizer"] = {optimizer_name(str(kind)): section}


def _add_callback(trainer: dict[str, Any], entry: dict[str, Any]) -> None:
    trainer["init"].setdefault("callbacks", []).append(entry)


def _schedulers(rate: Any, where: str) -> list[dict[str, Any]]:
    """Convert ``learning_rate``: a number, one scheduler, or a list of schedulers."""
    if not isinstance(rate, list | dict):
        return [{"ConstantLR": {"learning_rate": rate}}]
    entries = [_scheduler(entry, where) for entry in (rate if isinstance(rate, list) else [rate])]
    return entries if len(entries) == 1 else [{"SequentialLR": {"schedulers": entries}}]


def _scheduler(entry: Any, where: str) -> dict[str, Any]:
    """Convert ``{scheduler: Linear, ...}`` to ``{LinearLR: {...}}``."""
    if not isinstance(entry, dict) or not isinstance(entry.get("scheduler"), str):
        raise ConfigError(
            "an entry of 'optimizer.learning_rate' must name a scheduler",
            code="scheduler-without-name",
            where=where,
            value=repr(entry),
            rule="a number, or mappings with the key 'scheduler'",
        )
    arguments = dict(entry)
    name = arguments.pop("scheduler")
    return {name if name in SCHEDULES else f"{name.removesuffix('LR')}LR": arguments}


def _move_runconfig(trainer: dict[str, Any], section: dict[str, Any], where: str) -> None:
    for key in GPU_ONLY:
        section.pop(key, None)
    if (path := section.pop("checkpoint_path", None)) is not None:
        for mode, key in CHECKPOINT_PATH.items():
            if mode in trainer:
                trainer[mode][key] = path
    if section.pop("check_loss_values", True) is False:
        _add_callback(trainer, {"CheckLoss": None})
    if section.pop("log_input_summaries", False):
        _add_callback(trainer, {"LogInputSummaries": {}})
    known = [*RUNCONFIG, *GPU_ONLY, "checkpoint_path", "check_loss_values", "log_input_summaries"]
    _refuse_unknown(section, known, "runconfig.", where)
    _move_keys(trainer, section, RUNCONFIG)


def _refuse_unknown(data: Mapping[str, Any], known: Sequence[str], prefix: str, where: str) -> None:
    for key in data:
        if key not in known:
            raise unknown(f"key {f'{prefix}{key}'!r}", "keys", str(key), known, where)


def _not_supported(key: str, where: str) -> ConfigError:
    return ConfigError(
        f"{key!r} is known to the real machine, not supported here",
        code="not-supported",
        where=where,
        remedy="remove the key",
    )
