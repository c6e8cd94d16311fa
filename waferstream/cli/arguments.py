"""Parse the command line into the values that were typed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import CompletionItem  # type: ignore[attr-defined]

from waferstream.cli.flags.config import COMMAND_FLAGS, CONFIG_FLAGS, REAL_MACHINE_FLAGS
from waferstream.cli.flags.forms import FORMS, Form, instead
from waferstream.cli.flags.run import SIMULATION_FLAGS
from waferstream.cli.frame.commands import Command, built, parse, refusing
from waferstream.cli.frame.options import cluster_file
from waferstream.cli.frame.words import Fail, split_dotted, split_lists
from waferstream.cli.keys import TypedKeys, known_keys, typed_keys
from waferstream.config.overrides import Override
from waferstream.config.params import Mode
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.reports.economics import PriceSpec, check_tokens
from waferstream.scaling.sweep import SimulationRequest, parse_sweep
from waferstream.simulation.wafer_trace_request import WaferTraceRequest, parse_wafer_trace
from waferstream.training.trace_request import TraceRequest

_OVERRIDING_FLAGS = (*CONFIG_FLAGS, *REAL_MACHINE_FLAGS, *COMMAND_FLAGS)

_NOT_WITH = {
    "wafer_trace": ("simulate", "compile_only", "validate_only", "fault", "trace"),
    "simulate": ("compile_only", "validate_only", "fault"),
    "compile_only": ("validate_only",),
}
"""Flags that have no effect beside another. A simulation takes ``--local``: it starts no roles."""

_NEEDS = {"trace_limit": "trace"} | {flag.name: "simulate" for flag in SIMULATION_FLAGS}
"""Flags that have no effect without another."""

KEYS, OVER = "keys", "over"
"""Names in the context of a command of its dotted keys, and of lists of values for a study."""


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
    prints_json: bool
    """Whether the result is printed as JSON, and nothing else is."""
    simulation: SimulationRequest | None
    """The request of ``--simulate``; None for a functional run."""
    wafer_trace: WaferTraceRequest | None
    """The request of ``--wafer_trace``, which takes the place of a run."""
    is_plan: bool
    """Whether the simulation is of one number of systems, and leaves no files."""
    typed: Mapping[str, Any]
    """Values of the typed flags by flag name."""
    keys: TypedKeys = field(default_factory=TypedKeys)
    """Values of keys that were typed by their paths."""

    @property
    def num_parameters(self) -> float | None:
        """The most parameters of the model that ``--shrink`` makes; None without it."""
        return self.typed.get("shrink")

    @property
    def trains_or_evaluates(self) -> bool:
        """Whether a cluster, or a device, runs the model."""
        return self.simulation is None and self.wafer_trace is None

    def overrides(self) -> tuple[Override, ...]:
        """Return the typed configuration values: of flags as they are declared, then of keys."""
        of_flags = (
            Override(flag.spelling[-1], path, self.typed[flag.name], flag.how)
            for flag in _OVERRIDING_FLAGS
            if flag.name in self.typed
            for path in flag.paths
        )
        return (*of_flags, *self.keys.params)


def parse_arguments(argv: Sequence[str], home: Path, cwd: Path | None = None) -> Arguments:
    """Parse the words of a command that runs a params file; those of ``run.py`` name none.

    Args:
        argv: Words after the program's name; the first one may be a command (``train``).
        home: Folder that is searched for cluster.yaml after the current one.
        cwd: Folder that is searched first; the current one by default.

    Raises:
        SystemExit: code 2 for a wrong command line, code 0 after ``--help``.
        ConfigError: a sweep, a token budget or a price is out of range, a trace of the wafer
            names a kernel or a region that the simulator does not take, or a key does not exist.
    """
    name, *words = argv if argv and argv[0] in FORMS else ["run", *argv]
    ctx = parse(form_command(name), words, home)
    with refusing():
        return arguments_of(ctx, argv, cwd)


def form_command(name: str, run: Callable[[Any], int] = lambda _: 0) -> Any:
    """Return the command of a form, which gives its context to ``run``."""
    form = FORMS[name]

    def call(ctx: typer.Context, **typed: Any) -> int:  # noqa: ARG001  (they are in the context)
        return run(ctx)

    own = [Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    for title, flags in form.groups.items():
        own += [flag.parameter(title, hidden=not form.shows(flag)) for flag in flags]
    call.__signature__ = Signature(own)  # type: ignore[attr-defined]
    return built(name, call, form.example, FormCommand)


class FormCommand(Command):
    """A command that runs a params file, whose keys may be typed as flags."""

    has_printing_flags = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command, those of keys apart."""
        words, ctx.meta[KEYS] = split_dotted(args, ctx.fail)
        if self.name == "simulate":
            words, ctx.meta[OVER] = split_lists(words, ctx.meta[KEYS])
        if not ctx.resilient_parsing and (refusal := instead(str(self.name), words)):
            ctx.fail(refusal)
        return super().parse_args(ctx, words)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return what may follow a word: flags; keys, once it has a dot."""
        if "." not in incomplete:
            return super().shell_complete(ctx, incomplete)
        keys = (f"--{key}" for key in known_keys())
        return [CompletionItem(key) for key in keys if key.startswith(incomplete)]


def arguments_of(ctx: Any, words: Sequence[str], cwd: Path | None = None) -> Arguments:
    """Return what the context of a form's command says; ``typer.TyperException`` if it is wrong."""
    form = FORMS[ctx.command.name]
    typed = _typed(form, ctx)
    mode = typed.get("mode", "train_and_eval")
    _check_together(typed, mode, ctx.fail)
    return Arguments(
        words=tuple(words),
        params=Path(typed["params"]),
        mode=cast("Mode", mode),
        cluster=cluster_file(typed.get("cluster"), (cwd or Path(), ctx.obj)),
        is_local="local" in typed,
        trace=(
            TraceRequest(Path(typed["trace"]), typed.get("trace_limit", DEFAULT_LIMIT))
            if "trace" in typed
            else None
        ),
        faults=tuple(typed.get("fault", ())),
        prints_json="json" in typed,
        simulation=_simulation(typed) if "simulate" in typed else None,
        wafer_trace=parse_wafer_trace(typed["wafer_trace"]) if "wafer_trace" in typed else None,
        is_plan=form.name == "plan",
        typed={name: value for name, value in typed.items() if name not in form.says},
        keys=typed_keys(ctx.meta[KEYS]),
    )


def given(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a context that were typed."""
    return {
        name: value
        for name, value in params.items()
        if value is not None and value is not False and value != ()
    }


def _typed(form: Form, ctx: Any) -> dict[str, Any]:
    """Return the values of the flags that were typed, or that the form says, by their names."""
    typed = dict(form.says)
    flags = {flag.name: flag for flag in form.flags}
    for name, value in given(ctx.params).items():
        try:
            typed[name] = flags[name].collect(value)
        except ValueError as error:
            ctx.fail(f"argument --{name}: {error}")
    if "params" not in typed:
        ctx.fail("the following arguments are required: -p/--params")
    return typed


def _check_together(typed: Mapping[str, Any], mode: str, fail: Fail) -> None:
    """Refuse flags that would have no effect, or none together."""
    for name, others in _NOT_WITH.items():
        for other in others if name in typed else ():
            if other in typed:
                fail(f"--{other} cannot be combined with --{name}")
    for name, needed in _NEEDS.items():
        if name in typed and needed not in typed:
            fail(f"--{name} requires --{needed}")
    if "simulate" in typed and mode.startswith("eval"):
        fail(f"--simulate predicts training; it cannot be combined with mode {mode}")


def _simulation(typed: Mapping[str, Any]) -> SimulationRequest:
    if "token_budget" in typed:
        check_tokens(typed["token_budget"], "--token_budget")
    prices = {name: typed[name] for name in PriceSpec.model_fields if name in typed}
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
