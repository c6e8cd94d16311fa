"""Declare the command-line flags in one table.

Names, short forms and defaults are those of the vendor's command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from timing.hardware.wafer import SYSTEMS
from timing.record import DEFAULT_LIMIT
from waferstream.cli.flag_values import count, key_value, levels, setting
from waferstream.config.backend import DeviceType
from waferstream.config.overrides import (
    BACKEND,
    CALLBACKS,
    CHECKPOINT,
    CLUSTER,
    GLOBAL_FLAGS,
    INIT,
    LOGGING,
    LOOP,
    KeyPath,
)
from waferstream.config.params import Mode


@dataclass(frozen=True)
class Flag:
    """One command-line flag.

    ``options`` are keyword arguments of ``add_argument``; ``collect`` converts the value that
    argparse has read. A flag without ``paths`` controls the run, not the configuration.
    """

    name: str
    help: str
    short: str | None = None
    positional: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    collect: Callable[[Any], Any] = lambda value: value
    paths: tuple[KeyPath, ...] = ()
    how: Literal["set", "prepend", "merge"] = "set"
    excludes: str | None = None
    """Group of mutually exclusive flags."""

    @property
    def spelling(self) -> tuple[str, ...]:
        """The flag as it is typed, short form first."""
        if self.positional:
            return (self.name,)
        return (f"-{self.short}", f"--{self.name}") if self.short else (f"--{self.name}",)


_SWITCH = {"action": "store_true"}
_NUMBER = {"type": int}
_WORDS = {"nargs": "+", "action": "extend"}
_LABELS = {**_WORDS, "type": key_value, "metavar": "KEY=VALUE"}
_SETTINGS = {**_WORDS, "type": setting, "metavar": "KEY=VALUE"}


def _key(section: KeyPath, name: str, meaning: str, key: str | None = None, **more: Any) -> Flag:
    """Declare a flag for one configuration key, named like the flag unless ``key`` is given."""
    return Flag(name, meaning, paths=((*section, key or name),), **more)


RUN_FLAGS: tuple[Flag, ...] = (
    Flag("params", "YAML file with model, optimizer, data and loop (required)", short="p"),
    Flag(
        "mode",
        "what to run (default: train_and_eval; evaluates where evaluation data is configured)",
        short="m",
        options={"choices": get_args(Mode)},
    ),
    Flag(
        "cluster",
        "YAML file of the machine (default: cluster.yaml in this folder, else beside run.py)",
    ),
    Flag(
        "local",
        "run all roles in this process: for runtime.kind: local of the machine's file",
        options=_SWITCH,
    ),
    Flag(
        "fault",
        "let roles fail, such as csx-1@51:kill (ROLE@STEP[/MOMENT]:KIND[=SECONDS][*TIMES])",
        options=_WORDS,
    ),
    Flag("trace", "write a Perfetto trace of emulated and measured time to this file"),
    Flag(
        "trace_limit",
        f"most activities of each clock in the trace (default: {DEFAULT_LIMIT:,})",
        options=_NUMBER,
    ),
    Flag(
        "wafer_trace",
        "write a picture and an animation of one kernel of a layer on the simulated wafer, and run "
        "nothing else: LAYER[:KERNEL][@ROWSxCOLUMNS], such as decoder.0 or decoder.0:softmax@4x6",
        options={"metavar": "LAYER"},
    ),
    Flag(
        "simulate",
        "predict the time of training on --num_csx systems, without training",
        options=_SWITCH,
    ),
    Flag(
        "sweep",
        "numbers of systems to simulate besides --num_csx, of which details are printed: 1,2,4-8 "
        "or 1-192 or 1-2048:x2 (default: powers of two up to --num_csx)",
    ),
    Flag(
        "weak_scaling",
        "simulate a batch that grows: every system gets the batch of the params file",
        options=_SWITCH,
    ),
    Flag(
        "sparsity_step",
        "simulate the zeros of sparse weights as this step finds them (default: the mean over the "
        "steps of the run)",
        options=_NUMBER,
    ),
    Flag(
        "system",
        "CS systems to simulate and compare: CS-2, CS-3 or both (default: that of cluster.yaml)",
        options={"nargs": "+", "choices": tuple(SYSTEMS)},
    ),
    Flag(
        "token_budget",
        "number of training tokens, such as 300B or 1.4e12: adds time and energy to every row of "
        "the simulation, and the cost where a price is given",
        options={"type": count},
    ),
    Flag("system_hour_price", "price of one system-hour", options={"type": float}),
    Flag(
        "system_kw",
        "power draw of one system in kW, for its energy (default: 22.8 for a CS-2, 23 for a CS-3)",
        options={"type": float},
    ),
    Flag("kwh_price", "price of a kilowatt-hour", options={"type": float}),
    Flag(
        "activation_zeros",
        "run the model on a few samples and state the zeros that each product reads, beside the "
        "simulation; the weights are initial ones, or those of --checkpoint_path",
        options=_SWITCH,
    ),
    Flag(
        "json",
        "print the result as JSON: what is in run_summary.json, or in simulation.json with "
        "--simulate; text goes to standard error",
        options=_SWITCH,
    ),
    Flag("debug", "show the stack trace of errors", options=_SWITCH),
)

CONFIG_FLAGS: tuple[Flag, ...] = (
    _key(
        BACKEND,
        "device",
        "device: CSX is emulated, CPU and GPU run plain PyTorch (default: CSX)",
        positional=True,
        options={"nargs": "?", "choices": get_args(DeviceType), "default": None},
        key="backend_type",
    ),
    _key(
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
    _key(
        CHECKPOINT,
        "disable_strict_checkpoint_loading",
        "allow missing and unexpected weights in the checkpoint",
        options=_SWITCH,
    ),
    _key(
        (*CALLBACKS, "LoadCheckpointStates"),
        "load_checkpoint_states",
        "states to restore, separated by commas: model, optimizer, dataloader, ... (default: all)",
    ),
    _key(LOGGING, "logging", "log level of this process (default: INFO)", key="log_level"),
    _key(
        ("fit", "train_dataloader"),
        "batch_size",
        "samples of a training step, over all systems together",
        options=_NUMBER,
    ),
    _key(LOOP, "max_steps", "train up to this step", options=_NUMBER),
    _key(LOOP, "num_steps", "train this many steps from the start of the run", options=_NUMBER),
    _key(LOOP, "num_epochs", "train this many epochs", options=_NUMBER),
    _key(LOOP, "eval_steps", "batches per evaluation (default: all)", options=_NUMBER),
    _key(BACKEND, "compile_only", "compile in full, then stop", options=_SWITCH, excludes="stop"),
    _key(
        BACKEND,
        "validate_only",
        "check that every op has a kernel, then stop",
        options=_SWITCH,
        excludes="stop",
    ),
    _key(CLUSTER, "num_csx", "CS systems for the job (default: 1)", options=_NUMBER),
    _key(
        CLUSTER,
        "num_workers_per_csx",
        "input workers per system; 0 uses one local process, and the emulated clock assumes "
        "machine.input.workers_per_system of cluster.yaml (default: 1)",
        options=_NUMBER,
    ),
    _key(
        CLUSTER,
        "num_wgt_servers",
        "weight servers; 0 takes the number of cluster.yaml (default: 0)",
        options=_NUMBER,
        key="max_wgt_servers",
    ),
    _key(BACKEND, "compile_dir", "folder that keeps compile artifacts between runs", short="c"),
    _key(
        CLUSTER,
        "job_labels",
        "labels of the job, saved with its configuration",
        options=_LABELS,
        collect=dict,
        how="merge",
    ),
    _key(
        LOGGING,
        "wsc_log_level",
        "log level of the cluster: one for all, or task=level (crd wrk wgt act cmd br chf); roles "
        "write files below the run folder",
        options={**_WORDS, "metavar": "LEVEL"},
        collect=levels,
        how="merge",
    ),
    _key(
        CLUSTER,
        "mount_dirs",
        "folders of the job, before those of the params file (disable_mount_check: false checks "
        "them)",
        options={**_WORDS, "metavar": "DIR"},
        how="prepend",
    ),
    _key(
        CLUSTER,
        "python_paths",
        "folders that user code is imported from, before those of the params file",
        options={**_WORDS, "metavar": "DIR"},
        how="prepend",
    ),
    _key(CLUSTER, "job_time_sec", "stop the run after this many seconds", options=_NUMBER),
)

RUN_COMMANDS: Mapping[str, Mode] = {
    "fit": "train_and_eval",
    "validate": "eval",
    "validate_all": "eval_all",
}
"""Sub-commands that run a params file, and the mode of each."""

COMMAND_FLAGS: tuple[Flag, ...] = (
    Flag("params", "YAML file with model, optimizer, data and loop", positional=True),
    _key(
        BACKEND,
        "target_device",
        "device: CSX is emulated, CPU and GPU run plain PyTorch (default: CSX)",
        options={"choices": get_args(DeviceType)},
        key="backend_type",
    ),
)
"""How a sub-command takes what ``run.py`` takes as ``--params`` and as its first word."""

REAL_MACHINE_FLAGS: tuple[Flag, ...] = (
    _key(
        CLUSTER,
        "num_act_servers",
        "at most this many activation servers per system; 0 lets the cluster choose (default: 0)",
        options=_NUMBER,
        key="max_act_per_csx",
    ),
    _key(
        CLUSTER,
        "job_priority",
        "priority of the job, p1 first (default: p2)",
        options={"choices": ("p1", "p2", "p3")},
    ),
    _key(CLUSTER, "credentials_path", "certificate for cluster access"),
    _key(CLUSTER, "mgmt_address", "host:port of the cluster management"),
    _key(CLUSTER, "mgmt_namespace", "namespace of the cluster"),
    _key(CLUSTER, "cbcore_image", "image of the cluster's servers"),
    _key(
        GLOBAL_FLAGS,
        "debug_args",
        "debug settings, as a.b.c=value",
        options=_SETTINGS,
        collect=dict,
        how="merge",
        key="csx.debug.debug_args",
    ),
    _key((*CALLBACKS, "DebugArgsPath"), "debug_args_path", "file of debug settings of the servers"),
    _key(
        GLOBAL_FLAGS,
        "ini",
        "settings for compile and execution",
        options=_SETTINGS,
        collect=dict,
        how="merge",
        key="csx.debug.ini",
    ),
    _key(
        CLUSTER,
        "disable_version_check",
        "skip the version check between client and cluster",
        options=_SWITCH,
    ),
)
"""Flags that are checked and accepted so that command lines of the real machine run unchanged.

They control containers, certificates and debug settings that an emulated cluster does not have.
"""
