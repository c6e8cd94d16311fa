"""The flags of ``run.py``, declared once (cluster_interface.md, section 1.1)."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from modelzoo.config.logging import levels_by_role
from modelzoo.config.overrides import KeyPath

_BACKEND = ("init", "backend")
_CLUSTER = (*_BACKEND, "cluster_config")
_LOOP = ("init", "loop")
_CHECKPOINT = ("init", "checkpoint")
_LOGGING = ("init", "logging")
_GLOBAL_FLAGS = ("init", "callbacks", "GlobalFlags")


@dataclass(frozen=True)
class Flag:
    """One flag: how argparse reads it, and where its value goes in the configuration.

    ``options`` are keyword arguments of ``add_argument``; ``collect`` makes the value from what
    argparse has read. A flag without ``paths`` concerns the run, not the configuration.
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
    """Flags of the same group exclude each other."""

    @property
    def spelling(self) -> tuple[str, ...]:
        """The flag as it is typed, the short form first."""
        if self.positional:
            return (self.name,)
        return (f"-{self.short}", f"--{self.name}") if self.short else (f"--{self.name}",)


def parse_scalar(text: str) -> bool | int | float | str:
    """A bool, an int, a float, or else the text itself, tried in this order."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text!r} is not written key=value")
    return key, value


def _setting(text: str) -> tuple[str, bool | int | float | str]:
    key, value = _pair(text)
    return key, parse_scalar(value)


def _levels(words: Sequence[str]) -> dict[str, str]:
    """``INFO`` for all roles, ``wgt=DEBUG`` for one; a later word wins."""
    levels: dict[str, str] = {}
    for word in words:
        levels |= dict([_pair(word)]) if "=" in word else levels_by_role(word)
    return levels


_SWITCH = {"action": "store_true"}
_NUMBER = {"type": int}
_WORDS = {"nargs": "+", "action": "extend"}
_LABELS = {**_WORDS, "type": _pair, "metavar": "KEY=VALUE"}
_SETTINGS = {**_WORDS, "type": _setting, "metavar": "KEY=VALUE"}


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
    Flag(
        "wsc_log_level",
        "log level of the cluster: one for all, or task=level (crd wrk wgt act cmd br chf)",
        options={**_WORDS, "metavar": "LEVEL"},
        collect=_levels,
        paths=_at(_LOGGING, "wsc_log_level"),
        how="merge",
    ),
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
        "input workers per system; 0 lets the cluster choose (default: 1)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "num_workers_per_csx"),
    ),
    Flag(
        "num_wgt_servers",
        "at most this many weight servers; 0 lets the cluster choose (default: 0)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "max_wgt_servers"),
    ),
    Flag(
        "num_act_servers",
        "at most this many activation servers per system; 0 lets the cluster choose (default: 0)",
        options=_NUMBER,
        paths=_at(_CLUSTER, "max_act_per_csx"),
    ),
    Flag(
        "compile_dir",
        "folder that keeps compile artifacts between runs",
        short="c",
        paths=_at(_BACKEND, "compile_dir"),
    ),
    Flag(
        "job_labels",
        "labels of the job",
        options=_LABELS,
        collect=dict,
        paths=_at(_CLUSTER, "job_labels"),
        how="merge",
    ),
    Flag(
        "job_priority",
        "priority of the job, p1 first (default: p2)",
        options={"choices": ("p1", "p2", "p3")},
        paths=_at(_CLUSTER, "job_priority"),
    ),
    Flag(
        "job_time_sec",
        "end the run after this many seconds",
        options=_NUMBER,
        paths=_at(_CLUSTER, "job_time_sec"),
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
