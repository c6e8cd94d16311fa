"""Parse the command line into the values that were typed, and nothing else."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from waferstream.cli.flags.config import COMMAND_FLAGS, CONFIG_FLAGS, REAL_MACHINE_FLAGS
from waferstream.cli.flags.flag import Flag
from waferstream.cli.flags.run import RUN_COMMANDS, RUN_FLAGS
from waferstream.cli.management import COMMAND as MANAGEMENT
from waferstream.cli.serving import COMMANDS as SERVING
from waferstream.cli.tools.command import TOOLS
from waferstream.config.overrides import Override
from waferstream.config.params import Mode
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, nearest
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.management.model.inventory import DEFAULT_SESSION
from waferstream.reports.economics import PriceSpec, check_tokens
from waferstream.scaling.sweep import SimulationRequest, parse_sweep
from waferstream.simulation.wafer_trace_request import FLAG as WAFER_TRACE_FLAG
from waferstream.simulation.wafer_trace_request import WaferTraceRequest, parse_wafer_trace
from waferstream.training.trace_request import TraceRequest
from waferstream.version import VERSION

_OVERRIDING_FLAGS = (*CONFIG_FLAGS, *REAL_MACHINE_FLAGS, *COMMAND_FLAGS)

_COMMANDS = (*RUN_COMMANDS, "exec", "check", *SERVING, MANAGEMENT, *TOOLS)

_NOT_OF_COMMANDS = ("params", "mode", "device")
"""Flags of ``run.py`` that a sub-command states otherwise."""

_PRICES = tuple(PriceSpec.model_fields)

_SIMULATION_FLAGS = (
    "sweep",
    "weak_scaling",
    "sparsity_step",
    "system",
    "machine",
    "token_budget",
    "activation_zeros",
    "allow_overflow",
    "explain",
    *_PRICES,
)


@dataclass(frozen=True)
class SubmitRequest:
    """What flags say of a command that an appliance runs."""

    min_num_csx: int | None = None
    session: str = DEFAULT_SESSION
    detaches: bool = False


@dataclass(frozen=True)
class Arguments:
    """Parsed command line."""

    words: tuple[str, ...]
    """What was parsed."""
    params: Path
    mode: Mode
    cluster: Path | None
    """The cluster file; None where none was named and none was found."""
    is_local: bool
    """Whether all roles run in this process, whatever the cluster file says."""
    trace: TraceRequest | None
    faults: tuple[str, ...]
    debug: bool
    prints_json: bool
    """Whether the result is printed as JSON, and nothing else is."""
    simulation: SimulationRequest | None
    """The request of ``--simulate``; None for a functional run."""
    wafer_trace: WaferTraceRequest | None
    """The request of ``--wafer_trace``, which takes the place of a run."""
    submits: SubmitRequest
    """How the command is submitted, where its configuration names an appliance."""
    typed: Mapping[str, Any]
    """Values of the typed flags by flag name."""

    @property
    def trains_or_evaluates(self) -> bool:
        """Whether a cluster, or a device, runs the model."""
        return self.simulation is None and self.wafer_trace is None

    def overrides(self) -> tuple[Override, ...]:
        """Return the typed configuration values in the order of their flags' declaration."""
        return tuple(
            Override(flag.spelling[-1], path, self.typed[flag.name], flag.how)
            for flag in _OVERRIDING_FLAGS
            if flag.name in self.typed
            for path in flag.paths
        )


def parse_arguments(argv: Sequence[str], home: Path, cwd: Path | None = None) -> Arguments:
    """Parse a command line.

    Args:
        argv: Words after the program's name; the first one may be a sub-command (``fit``).
        home: Folder that is searched for cluster.yaml after the current one.
        cwd: Folder that is searched first; the current one by default.

    Raises:
        SystemExit: code 2 for a wrong command line, code 0 after ``--help`` and ``--version``.
        ConfigError: a sweep, a token budget or a price is out of range, or a trace of the wafer
            names a kernel or a region that the simulator does not take.
    """
    command = argv[0] if argv and argv[0] in RUN_COMMANDS else None
    words, groups = argv[1:] if command else argv, _flag_groups(command)
    flags = [flag for group in groups.values() for flag in group]
    parser = build_parser(command)
    _refuse_unknown_flags(parser, words, flags)
    parsed = vars(parser.parse_args(words))
    given = {name: value for name, value in parsed.items() if value is not None}
    if "params" not in given:
        parser.error("the following arguments are required: -p/--params")
    typed = {flag.name: flag.collect(given[flag.name]) for flag in flags if flag.name in given}
    mode = RUN_COMMANDS[command] if command else typed.get("mode", "train_and_eval")
    return Arguments(
        words=tuple(argv),
        params=Path(typed["params"]),
        mode=cast("Mode", mode),
        cluster=cluster_file(typed.get("cluster"), (cwd or Path(), home)),
        is_local="local" in typed,
        trace=_trace(parser, typed),
        faults=tuple(typed.get("fault", ())),
        debug="debug" in typed or "traceback" in typed,
        prints_json="json" in typed,
        simulation=_simulation(parser, typed, mode),
        wafer_trace=_wafer_trace(parser, typed),
        submits=SubmitRequest(
            typed.get("min_num_csx"), typed.get("session", DEFAULT_SESSION), "detach" in typed
        ),
        typed=typed,
    )


def _trace(parser: argparse.ArgumentParser, typed: Mapping[str, Any]) -> TraceRequest | None:
    if "trace" not in typed:
        if "trace_limit" in typed:
            parser.error("--trace_limit requires --trace")
        return None
    return TraceRequest(Path(typed["trace"]), typed.get("trace_limit", DEFAULT_LIMIT))


def _wafer_trace(
    parser: argparse.ArgumentParser, typed: Mapping[str, Any]
) -> WaferTraceRequest | None:
    if "wafer_trace" not in typed:
        return None
    for name in ("simulate", "compile_only", "validate_only", "fault", "trace"):
        if name in typed:
            parser.error(f"--{name} cannot be combined with {WAFER_TRACE_FLAG}")
    return parse_wafer_trace(typed["wafer_trace"])


def _simulation(
    parser: argparse.ArgumentParser, typed: Mapping[str, Any], mode: str
) -> SimulationRequest | None:
    if "simulate" not in typed:
        for name in _SIMULATION_FLAGS:
            if name in typed:
                parser.error(f"--{name} requires --simulate")
        return None
    _refuse_ignored(parser, typed, mode)
    if "token_budget" in typed:
        check_tokens(typed["token_budget"], "--token_budget")
    prices = {name: typed[name] for name in _PRICES if name in typed}
    return SimulationRequest(
        sweep=parse_sweep(typed["sweep"], "--sweep") if "sweep" in typed else None,
        machines=(*typed.get("system", ()), *typed.get("machine", ())),
        weak="weak_scaling" in typed,
        sparsity_step=typed.get("sparsity_step"),
        token_budget=typed.get("token_budget"),
        measures_zeros="activation_zeros" in typed,
        allows_overflow="allow_overflow" in typed,
        explains="explain" in typed,
        prices=validate(PriceSpec, prices, "command line"),
    )


def _refuse_ignored(parser: argparse.ArgumentParser, typed: Mapping[str, Any], mode: str) -> None:
    """Exit when a typed flag would have no effect on a simulation.

    ``--local`` is taken: a simulation has no roles, and so starts nothing outside of this process.
    """
    if mode.startswith("eval"):
        parser.error(f"--simulate predicts training; it cannot be combined with mode {mode}")
    for name in ("compile_only", "validate_only", "fault"):
        if name in typed:
            parser.error(f"--{name} cannot be combined with --simulate")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the argparse parser of a sub-command, or of ``run.py`` without one.

    A flag that was not typed leaves no attribute.
    """
    form = f"{command} PARAMS" if command else "[CSX] --params FILE [--mode MODE]"
    parser = argparse.ArgumentParser(
        prog="waferstream",
        usage=f"waferstream {form} [flags]",
        description="Train, evaluate or simulate a model on an emulated wafer-scale cluster.",
        epilog="A flag on the command line overrides the same key of the params file. Other "
        f"commands: {', '.join(_COMMANDS)} (waferstream COMMAND --help).",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    exclusive: dict[str, argparse._MutuallyExclusiveGroup] = {}
    for title, flags in _flag_groups(command).items():
        group = parser.add_argument_group(title)
        for flag in flags:
            _add(group, flag, exclusive)
    return parser


def _flag_groups(command: str | None) -> dict[str, Sequence[Flag]]:
    """Return the flags of a command by the title of their group."""
    groups: dict[str, Sequence[Flag]] = {
        "run and simulation": RUN_FLAGS,
        "configuration (overrides the params file)": CONFIG_FLAGS,
        "flags of the real machine (accepted, no effect here)": REAL_MACHINE_FLAGS,
    }
    if command is None:
        return groups
    kept = {
        title: [flag for flag in flags if flag.name not in _NOT_OF_COMMANDS]
        for title, flags in groups.items()
    }
    return {"what to run": COMMAND_FLAGS, **kept}


def _add(
    group: argparse._ArgumentGroup,
    flag: Flag,
    exclusive: dict[str, argparse._MutuallyExclusiveGroup],
) -> None:
    target: argparse._ActionsContainer = group
    if flag.excludes is not None:
        if flag.excludes not in exclusive:
            exclusive[flag.excludes] = group.add_mutually_exclusive_group()
        target = exclusive[flag.excludes]
    target.add_argument(*flag.spelling, help=flag.help, **flag.options)


def _refuse_unknown_flags(
    parser: argparse.ArgumentParser, argv: Sequence[str], flags: Sequence[Flag]
) -> None:
    """Exit on an unknown flag before argparse reports arguments that are missing because of it."""
    words = (word for flag in flags for word in flag.spelling if not flag.positional)
    known = ["-h", "--help", "--version", *words]
    for word in argv:
        name = word.split("=")[0] if word.startswith("--") else word[:2]
        is_flag = word.startswith("-") and not name[1:].isdecimal() and word != "-"
        if is_flag and name not in known:
            _refuse(parser, name, known)


def _refuse(parser: argparse.ArgumentParser, name: str, known: Sequence[str]) -> NoReturn:
    guess = nearest(name, known)
    parser.error(f"unknown flag {name}" + (f"; did you mean {guess}?" if guess else ""))


def cluster_file(typed: str | None, folders: Sequence[Path]) -> Path | None:
    """Return the named file, else the first cluster.yaml in ``folders``."""
    if typed is not None:
        return Path(typed)
    candidates = (folder / "cluster.yaml" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)


def check_names(command: str) -> None:
    """Refuse names of files that no report could state: they are bytes that are no text."""
    for where, name in (("command line", command), ("working folder", str(Path.cwd()))):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                "names of files must be UTF-8",
                code="name-not-utf-8",
                where=where,
                value=name.encode(errors="backslashreplace").decode(),
                rule="reports, events and JSON are UTF-8",
                remedy="rename the file or folder, or give it a link with another name",
            ) from error
