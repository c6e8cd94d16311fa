"""The flags that override keys of the configuration, each beside its key.

Names, short forms and defaults are those of the vendor's command line.
"""

from __future__ import annotations

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

_KEY_VALUES: dict[str, Any] = {"kind": list[str], "metavar": "KEY=VALUE"}

CONFIG_FLAGS: tuple[Flag, ...] = (
    key_flag(
        BACKEND,
        "device",
        "device: CSX is emulated, CPU and GPU run plain PyTorch (default: CSX)",
        positional=True,
        kind=DeviceType,
        key="backend_type",
    ),
    key_flag(
        INIT,
        "model_dir",
        "folder for checkpoints, logs and events (default: ./model_dir)",
        short="o",
    ),
    Flag(
        "checkpoint_path",
        "checkpoint to start from",
        paths=(("fit", "ckpt_path"), ("validate", "ckpt_path"), ("validate_all", "ckpt_paths")),
    ),
    key_flag(
        CHECKPOINT,
        "disable_strict_checkpoint_loading",
        "allow missing and unexpected weights in the checkpoint",
        kind=bool,
    ),
    key_flag(
        CHECKPOINT,
        "allow_changes",
        "go on from a checkpoint of a run on another model or other data",
        kind=bool,
    ),
    key_flag(
        (*CALLBACKS, "LoadCheckpointStates"),
        "load_checkpoint_states",
        "states to restore, separated by commas: model, optimizer, dataloader, ... (default: all)",
    ),
    key_flag(LOGGING, "logging", "log level of this process (default: INFO)", key="log_level"),
    key_flag(
        LOGGING,
        "log",
        "lines of the terminal: plain, vendor (those of its client) or quiet (default: plain)",
        kind=Words,
        key="words",
    ),
    key_flag(
        LOGGING,
        "quiet",
        "show warnings and the result alone, as --log quiet",
        kind=bool,
        collect=lambda _: "quiet",
        key="words",
    ),
    key_flag(
        ("fit", "train_dataloader"),
        "batch_size",
        "samples of a training step, over all systems together",
        kind=int,
    ),
    key_flag(LOOP, "max_steps", "train up to this step", kind=int),
    key_flag(LOOP, "num_steps", "train this many steps from the start of the run", kind=int),
    key_flag(LOOP, "num_epochs", "train this many epochs", kind=int),
    key_flag(LOOP, "eval_steps", "batches per evaluation (default: all)", kind=int),
    key_flag(BACKEND, "compile_only", "compile in full, then stop", kind=bool),
    key_flag(
        BACKEND,
        "validate_only",
        "check that every op has a kernel, then stop",
        kind=bool,
    ),
    key_flag(CLUSTER, "num_csx", "CS systems for the job (default: 1)", kind=int),
    key_flag(
        CLUSTER,
        "num_workers_per_csx",
        "input workers per system; 0 uses one local process, and the emulated clock assumes "
        "machine.input.workers_per_system of cluster.yaml (default: 1)",
        kind=int,
    ),
    key_flag(
        CLUSTER,
        "num_wgt_servers",
        "weight servers; 0 takes the number of cluster.yaml (default: 0)",
        kind=int,
        key="max_wgt_servers",
    ),
    key_flag(BACKEND, "compile_dir", "folder that keeps compile artifacts between runs", short="c"),
    key_flag(
        CLUSTER,
        "job_labels",
        "labels of the job, saved with its configuration",
        **_KEY_VALUES,
        collect=key_values,
        how="merge",
    ),
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
    key_flag(
        CLUSTER,
        "mount_dirs",
        "folders of the job, before those of the params file (disable_mount_check: false checks "
        "them)",
        kind=list[str],
        metavar="DIR",
        how="prepend",
    ),
    key_flag(
        CLUSTER,
        "python_paths",
        "folders that user code is imported from, before those of the params file",
        kind=list[str],
        metavar="DIR",
        how="prepend",
    ),
    key_flag(CLUSTER, "job_time_sec", "stop the run after this many seconds", kind=int),
    key_flag(
        CLUSTER,
        "mgmt_address",
        "submit the command to the appliance at host:port, and follow it from here",
    ),
    key_flag(
        CLUSTER,
        "credentials_path",
        "certificate of that appliance, or a folder of certificates make",
    ),
    key_flag(
        CLUSTER,
        "disable_version_check",
        "skip the version check between client and appliance",
        kind=bool,
    ),
)

COMMAND_FLAGS: tuple[Flag, ...] = (
    Flag(
        "params",
        "YAML file with model, optimizer, data and loop",
        positional=True,
        required=True,
        metavar="PARAMS",
    ),
    key_flag(
        BACKEND,
        "target_device",
        "device: CSX is emulated, CPU and GPU run plain PyTorch (default: CSX)",
        kind=DeviceType,
        key="backend_type",
    ),
)
"""How a sub-command takes what ``run.py`` takes as ``--params`` and as its first word."""

REAL_MACHINE_FLAGS: tuple[Flag, ...] = (
    key_flag(
        CLUSTER,
        "num_act_servers",
        "at most this many activation servers per system; 0 lets the cluster choose (default: 0)",
        kind=int,
        key="max_act_per_csx",
    ),
    key_flag(CLUSTER, "mgmt_namespace", "namespace of the cluster"),
    key_flag(CLUSTER, "cbcore_image", "image of the cluster's servers"),
    key_flag(
        GLOBAL_FLAGS,
        "debug_args",
        "debug settings, as a.b.c=value",
        **_KEY_VALUES,
        collect=settings,
        how="merge",
        key="csx.debug.debug_args",
    ),
    key_flag(
        (*CALLBACKS, "DebugArgsPath"), "debug_args_path", "file of debug settings of the servers"
    ),
    key_flag(
        GLOBAL_FLAGS,
        "ini",
        "settings for compile and execution",
        **_KEY_VALUES,
        collect=settings,
        how="merge",
        key="csx.debug.ini",
    ),
)
"""Flags that are checked and accepted so that command lines of the real machine run unchanged.

They control containers, certificates and debug settings that an emulated cluster does not have.
"""
