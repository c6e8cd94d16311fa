"""The flags that override keys of the configuration, each beside its key.

Names, short forms and defaults are those of the vendor's command line.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from waferstream.cli.flags.flag import Flag, key_flag, key_values, levels, settings
from waferstream.config.overrides import (
    BACKEND,
    CALLBACKS,
    CHECKPOINT,
    CLUSTER,
    GLOBAL_FLAGS,
    INIT,
    LOGGING,
    LOOP,
)
from waferstream.config.sections.backend import DeviceType
from waferstream.host.words import Words

_switch, _number = partial(key_flag, kind=bool), partial(key_flag, kind=int)
_folders = partial(key_flag, kind=list[str], metavar="DIR", how="prepend")
_pairs: Any = partial(key_flag, kind=list[str], metavar="KEY=VALUE", how="merge")
_settings = partial(_pairs, collect=settings)

_DEVICE: dict[str, Any] = {
    "meaning": "device: CSX is emulated, CPU and GPU run plain PyTorch (default: CSX)",
    "kind": DeviceType,
    "key": "backend_type",
}

CONFIG_FLAGS: tuple[Flag, ...] = (
    key_flag(BACKEND, "device", positional=True, **_DEVICE),
    key_flag(INIT, "model_dir", "folder of checkpoints and logs (default: ./model_dir)", short="o"),
    Flag(
        "checkpoint_path",
        "checkpoint to start from",
        paths=(("fit", "ckpt_path"), ("validate", "ckpt_path"), ("validate_all", "ckpt_paths")),
    ),
    _switch(CHECKPOINT, "disable_strict_checkpoint_loading", "allow missing and other weights"),
    _switch(CHECKPOINT, "allow_changes", "go on from a checkpoint of another model or other data"),
    key_flag(
        (*CALLBACKS, "LoadCheckpointStates"),
        "load_checkpoint_states",
        "states to restore, separated by commas: model, optimizer, dataloader, ... (default: all)",
    ),
    key_flag(LOGGING, "logging", "log level of this process (default: INFO)", key="log_level"),
    key_flag(LOGGING, "log", "lines of the terminal (default: plain)", kind=Words, key="words"),
    _switch(LOGGING, "quiet", "as --log quiet", collect=lambda _: "quiet", key="words"),
    _number(("fit", "train_dataloader"), "batch_size", "samples of a step, over all systems"),
    _number(LOOP, "max_steps", "train up to this step"),
    _number(LOOP, "num_steps", "train this many steps from the start of the run"),
    _number(LOOP, "num_epochs", "train this many epochs"),
    _number(LOOP, "eval_steps", "batches per evaluation (default: all)"),
    _switch(BACKEND, "compile_only", "compile in full, then stop"),
    _switch(BACKEND, "validate_only", "check that every op has a kernel, then stop"),
    _number(CLUSTER, "num_csx", "CS systems for the job (default: 1)"),
    _number(
        CLUSTER,
        "num_workers_per_csx",
        "input workers per system; 0 uses one local process, and the emulated clock assumes "
        "machine.input.workers_per_system of cluster.yaml (default: 1)",
    ),
    _number(CLUSTER, "num_wgt_servers", "weight servers; 0: of cluster.yaml", "max_wgt_servers"),
    key_flag(BACKEND, "compile_dir", "folder that keeps compile artifacts between runs", short="c"),
    _pairs(CLUSTER, "job_labels", "labels, saved with the configuration", collect=key_values),
    key_flag(
        CLUSTER,
        "job_priority",
        "place of the job in the queue of cluster.yaml (runtime.queue), p1 first (default: p2)",
        kind=Literal["p1", "p2", "p3"],
    ),
    key_flag(
        LOGGING,
        "wsc_log_level",
        "log level of the cluster: one for all, or task=level (crd wrk wgt act cmd br chf); roles "
        "write files below the run folder",
        kind=list[str],
        metavar="LEVEL",
        collect=levels,
        how="merge",
    ),
    _folders(CLUSTER, "mount_dirs", "folders of the job, before those of the params file"),
    _folders(CLUSTER, "python_paths", "folders of user code, before those of the params file"),
    _number(CLUSTER, "job_time_sec", "stop the run after this many seconds"),
    key_flag(CLUSTER, "mgmt_address", "submit to the appliance at host:port, and follow from here"),
    key_flag(CLUSTER, "credentials_path", "its certificate, or a folder of certificates make"),
    _switch(CLUSTER, "disable_version_check", "let client and appliance have different versions"),
)

COMMAND_FLAGS: tuple[Flag, ...] = (
    Flag(
        "params",
        "YAML file with model, optimizer, data and loop",
        positional=True,
        required=True,
        metavar="PARAMS",
    ),
    key_flag(BACKEND, "target_device", **_DEVICE),
)
"""How a sub-command takes what ``run.py`` takes as ``--params`` and as its first word."""

REAL_MACHINE_FLAGS: tuple[Flag, ...] = (
    _number(CLUSTER, "num_act_servers", "activation servers per system; 0: any", "max_act_per_csx"),
    key_flag(CLUSTER, "mgmt_namespace", "namespace of the cluster"),
    key_flag(CLUSTER, "cbcore_image", "image of the cluster's servers"),
    _settings(GLOBAL_FLAGS, "debug_args", "debug settings, as a.b.c=value", "csx.debug.debug_args"),
    key_flag((*CALLBACKS, "DebugArgsPath"), "debug_args_path", "file of debug settings"),
    _settings(GLOBAL_FLAGS, "ini", "settings for compile and execution", "csx.debug.ini"),
)
"""Flags that are checked and accepted so that command lines of the real machine run unchanged.

They control containers, certificates and debug settings that an emulated cluster does not have.
"""
