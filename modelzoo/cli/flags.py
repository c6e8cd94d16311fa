"""The flags of ``run.py``, declared once (cluster_interface.md, section 1.1)."""

from __future__ import annotations

from modelzoo.cli.flag import Flag, key_value, levels, setting
from modelzoo.config.overrides import KeyPath

_BACKEND = ("init", "backend")
_CLUSTER = (*_BACKEND, "cluster_config")
_LOOP = ("init", "loop")
_CHECKPOINT = ("init", "checkpoint")
_LOGGING = ("init", "logging")
_GLOBAL_FLAGS = ("init", "callbacks", "GlobalFlags")

_SWITCH = {"action": "store_true"}
_NUMBER = {"type": int}
_WORDS = {"nargs": "+", "action": "extend"}
_LABELS = {**_WORDS, "type": key_value, "metavar": "KEY=VALUE"}
_SETTINGS = {**_WORDS, "type": setting, "metavar": "KEY=VALUE"}


def _at(parent: KeyPath, key: str) -> tuple[KeyPath, ...]:
    return ((*parent, key),)


RUN_FLAGS: tuple[Flag, ...] = (
    Flag("params", "YAML file of the run: model, optimizer, data, loop", short="p"),
    Flag(
        "mode",
        "what to run (default: train_and_eval, with evaluation where there is data for it)",
        short="m",
        options={"choices": ("train", "eval", "train_and_eval", "eval_all")},
    ),
    Flag(
        "cluster",
        "YAML file of the machine (default: cluster.yaml here, else the one beside run.py)",
    ),
    Flag("trace", "write a Perfetto trace of both clocks, emulated and real, to this file"),
    Flag(
        "simulate",
        "predict what training would take on --num_csx systems, without training",
        options=_SWITCH,
    ),
    Flag(
        "sweep",
        "simulate on all these numbers of systems: 1,2,4-8 or 1-192 or 1-2048:x2 "
        "(default: powers of two up to --num_csx)",
    ),
    Flag(
        "token_budget",
        "tokens to train on, as in 1.4e12: time and cost are simulated, too",
        options={"type": float},
    ),
    Flag(
        "system_hour_price",
        "price of an hour of one system; the default of 10 is illustrative",
        options={"type": float},
    ),
    Flag("system_kw", "power that one system draws (default: 0)", options={"type": float}),
    Flag("kwh_price", "price of a kilowatt-hour (default: 0)", options={"type": float}),
    Flag("debug", "show the stack trace of an error", options=_SWITCH),
)

CONFIG_FLAGS: tuple[Flag, ...] = (
    Flag(
        "device",
        "CSX is emulated; CPU and GPU are refused (default: CSX)",
        positional=True,
        options={"nargs": "?", "choices": ("CSX", "CPU", "GPU"), "default": None},
        paths=_at(_BACKEND, "backend_type"),
    ),
    Flag(
        "model_dir",
        "folder for checkpoints, logs and events (default: ./model_dir)",
        short="o",
        paths=_at(("init",), "model_dir"),
    ),
    Flag(
        "checkpoint_path",
        "checkpoint to start from",
        paths=(("fit", "ckpt_path"), ("validate", "ckpt_path"), ("validate_all", "ckpt_paths")),
    ),
    Flag(
        "disable_strict_checkpoint_loading",
        "allow weights that are missing in the checkpoint or not expected",
        options=_SWITCH,
        paths=_at(_CHECKPOINT, "disable_strict_checkpoint_loading"),
    ),
    Flag(
        "load_checkpoint_states",
        "what to restore, separated by commas: model, optimizer, dataloader, ... (default: all)",
        paths=(("init", "callbacks", "LoadCheckpointStates", "load_checkpoint_states"),),
    ),
    Flag("logging", "log level of this process (default: INFO)", paths=_at(_LOGGING, "log_level")),
    Flag("max_steps", "train up to this step", options=_NUMBER, paths=_at(_LOOP, "max_steps")),
    Flag(
        "num_steps",
        "train this many steps from where the run starts",
        options=_NUMBER,
        paths=_at(_LOOP, "num_steps"),
    ),
    Flag("num_epochs", "train this many epochs", options=_NUMBER, paths=_at(_LOOP, "num_epochs")),
    Flag(
        "eval_steps",
        "batches of one evaluation (default: all)",
        options=_NUMBER,
        paths=_at(_LOOP, "eval_steps"),
    ),
    Flag(
        "compile_only",
        "compile in full, then stop",
        options=_SWITCH,
        paths=_at(_BACKEND, "compile_only"),
        excludes="stop",
    ),
    Flag(
        "validate_only",
        "check that every op has a kernel, then stop",
        options=_SWITCH,
        paths=_at(_BACKEND, "validate_only"),
        excludes="stop",
    ),
    Flag(
        "num_csx",
        "CS systems for the job (default: 1)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "num_csx"),
    ),
    Flag(
        "num_workers_per_csx",
        "input workers per system, as many as cluster.yaml allows; 0: one process, on the emulated "
        "clock as many as the machine says (default: 1)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "num_workers_per_csx"),
    ),
    Flag(
        "num_wgt_servers",
        "weight servers; 0 takes the number of cluster.yaml (default: 0)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "max_wgt_servers"),
    ),
    Flag(
        "compile_dir",
        "folder that keeps compile artifacts between runs",
        short="c",
        paths=_at(_BACKEND, "compile_dir"),
    ),
    Flag(
        "job_labels",
        "labels of the job, kept with its configuration",
        options=_LABELS,
        collect=dict,
        paths=_at(_CLUSTER, "job_labels"),
        how="merge",
    ),
    Flag(
        "job_time_sec",
        "end the run after this many seconds",
        options=_NUMBER,
        paths=_at(_CLUSTER, "job_time_sec"),
    ),
)

REAL_MACHINE_FLAGS: tuple[Flag, ...] = (
    Flag(
        "wsc_log_level",
        "log level of the cluster: one for all, or task=level (crd wrk wgt act cmd br chf)",
        options={**_WORDS, "metavar": "LEVEL"},
        collect=levels,
        paths=_at(_LOGGING, "wsc_log_level"),
        how="merge",
    ),
    Flag(
        "num_act_servers",
        "at most this many activation servers per system; 0 lets the cluster choose (default: 0)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "max_act_per_csx"),
    ),
    Flag(
        "job_priority",
        "priority of the job, p1 first (default: p2)",
        options={"choices": ("p1", "p2", "p3")},
        paths=_at(_CLUSTER, "job_priority"),
    ),
    Flag(
        "mount_dirs",
        "folders that the cluster may read, before those of the file",
        options={**_WORDS, "metavar": "DIR"},
        paths=_at(_CLUSTER, "mount_dirs"),
        how="prepend",
    ),
    Flag(
        "python_paths",
        "entries for PYTHONPATH of the input workers, before those of the file",
        options={**_WORDS, "metavar": "DIR"},
        paths=_at(_CLUSTER, "python_paths"),
        how="prepend",
    ),
    Flag(
        "credentials_path",
        "certificate for access to the cluster",
        paths=_at(_CLUSTER, "credentials_path"),
    ),
    Flag(
        "mgmt_address",
        "host:port of the cluster management",
        paths=_at(_CLUSTER, "mgmt_address"),
    ),
    Flag("mgmt_namespace", "namespace of the cluster", paths=_at(_CLUSTER, "mgmt_namespace")),
    Flag("cbcore_image", "image of the cluster's servers", paths=_at(_CLUSTER, "cbcore_image")),
    Flag(
        "debug_args",
        "debug settings, as a.b.c=value",
        options=_SETTINGS,
        collect=dict,
        paths=_at(_GLOBAL_FLAGS, "csx.debug.debug_args"),
        how="merge",
    ),
    Flag(
        "ini",
        "settings for compile and execution",
        options=_SETTINGS,
        collect=dict,
        paths=_at(_GLOBAL_FLAGS, "csx.debug.ini"),
        how="merge",
    ),
    Flag(
        "disable_version_check",
        "do not compare the versions of client and cluster",
        options=_SWITCH,
        paths=_at(_CLUSTER, "disable_version_check"),
    ),
)
"""Checked and accepted, so that a command line written for the real machine runs unchanged.

They concern containers, certificates and debug settings, of which an emulated cluster has none.
"""
