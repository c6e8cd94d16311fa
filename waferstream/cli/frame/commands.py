"""Commands and groups of commands, as Typer builds them from typed functions."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command
from typer.models import OptionInfo, ParameterInfo

from appliance.user_code import importing_from
from waferstream.cli.frame.output import ask_for_json, ask_for_no_pager
from waferstream.cli.frame.words import Flag, as_declared, is_flag, spelled, underscored
from waferstream.core.config_errors import rule_of
from waferstream.core.errors import ConfigError

SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Settings of the context of the outermost command; those below inherit them."""

NAME = "waferstream"

COMPLETE = "_WAFERSTREAM_COMPLETE"
"""Variable in which a shell says what it asks for, when it completes a word."""

WORDS = "words"
"""Name in the context of a command of all words that were typed."""

_MARKUP = re.compile(r"\[(?=[a-z#/@])", re.IGNORECASE)
"""What rich would read as markup, but for the text before it."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Copy(io.StringIO):
    """Text that is kept, for a writer that asks whether a terminal shows it."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _print(
    json: Annotated[
        bool, typer.Option("--json", help="print JSON", callback=ask_for_json, expose_value=False)
    ] = False,
    no_pager: Annotated[
        bool,
        typer.Option(
            "-P",
            "--no-pager",
            help="print tables at once",
            callback=ask_for_no_pager,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Declare the flags of every command that prints."""


@cache
def _printing_flags() -> tuple[Any, ...]:
    return tuple(_built(_print).params)


def _built(function: Callable[..., Any], **settings: Any) -> Any:
    """Return the command that Typer makes of a function, with settings as of its ``command``."""
    app = typer.Typer(add_completion=False)
    app.command(**settings)(function)
    return get_command(app)


class Command(TyperCommand):
    """A command. Flags that take several values take them in one go, too: ``--x 1 2``.

    User code is imported from the folder of its params file, and from the current one.
    """

    has_printing_flags = True
    imports_from_here = True

    def __init__(self, *args: Any, params: Sequence[Any] = (), **settings: Any) -> None:
        own = _printing_flags() if self.has_printing_flags else ()
        super().__init__(*args, params=[*params, *own], **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command into ``ctx.params``."""
        if not ctx.resilient_parsing:
            args = list(as_declared(args, self.flags(ctx), ctx.fail))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the function of the command."""
        file = ctx.params.get("params") or ctx.params.get("config") or ""
        folders = (Path(file).parent, Path()) if self.imports_from_here else ()
        with importing_from(folders):
            return super().invoke(ctx)

    def flags(self, ctx: Any) -> dict[str, Flag]:
        """Return the flags of the command by their names with underscores."""
        options = [each for each in self.get_params(ctx) if isinstance(each, TyperOption)]
        return {spelled(word): (word, option) for option in options for word in option.opts}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the command."""
        formatter.write(_help(self, ctx))


class Program(Command):
    """A command that runs a program: what follows it are the program's own words."""

    allow_interspersed_args = False
    has_printing_flags = False
    imports_from_here = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words before the program's own; a module after ``-m`` is a program, too."""
        alone = {word for word, (_, option) in self.flags(ctx).items() if option.is_flag}
        place = 0
        while place < len(args) and is_flag(args[place]) and args[place] not in ("-m", "--"):
            place += 1 if "=" in args[place] or spelled(args[place]) in alone else 2
        end = place + (2 if args[place : place + 1] == ["-m"] else 0)
        own = ["--", *args[end + (args[end : end + 1] == ["--"]) :]] if args[end:] else []
        return super().parse_args(ctx, [*args[:end], *own])


class Group(TyperGroup):
    """A group of commands, which are named with hyphens or underscores."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  (as of Typer's)
        """Return the command of a name; None if there is none."""
        names = {underscored(name): command for name, command in self.commands.items()}
        return names.get(underscored(cmd_name))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group."""
        formatter.write(_help(self, ctx))


def _help(command: TyperCommand | TyperGroup, ctx: Any) -> str:
    """Return a help page; whoever prints it meets what is wrong with standard output."""
    from typer.rich_utils import rich_format_help  # noqa: PLC0415  (slow)

    with redirect_stdout(_Copy()) as page:
        rich_format_help(obj=command, ctx=ctx, markup_mode="rich")
    return page.getvalue()


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose parameters are flags: those of a dataclass are its fields."""
    hints = get_type_hints(function, include_extras=True)
    whole: dict[str, Any] = {}
    own: list[Parameter] = []
    for each in signature(function).parameters.values():
        kind = hints.get(each.name, each.annotation)
        if is_dataclass(kind):
            whole[each.name] = kind
            own += _fields(kind)
        else:
            kind = _as_flag(each.name, kind, None)
            own.append(each.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))

    def call(**typed: Any) -> Any:
        for name, kind in whole.items():
            typed[name] = kind(**{each.name: typed.pop(each.name) for each in fields(kind)})
        return function(**typed)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__signature__ = Signature(own)  # type: ignore[attr-defined]
    return call


def _fields(kind: Any) -> Iterator[Parameter]:
    """Yield the fields of a dataclass as parameters; its PANEL is their title in the help."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        default = Parameter.empty if each.default is MISSING else each.default
        of_flag = _as_flag(each.name, hints[each.name], getattr(kind, "PANEL", None))
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=of_flag)


def _as_flag(name: str, kind: Any, panel: str | None) -> Any:
    """Return the type of a parameter, of an option with its name as it is declared."""
    if get_origin(kind) is not Annotated or not isinstance(kind.__metadata__[0], ParameterInfo):
        return kind
    own = copy(kind.__metadata__[0])
    own.help = _MARKUP.sub(r"\\\g<0>", own.help or "")
    if isinstance(own, OptionInfo):
        if own.default is ... and not own.param_decls:  # Typer takes the first name for one
            own.param_decls = (f"--{name}",)
        own.rich_help_panel = own.rich_help_panel or panel
        if own.min is not None and not own.metavar:
            own.metavar = "N"  # beside its range
    return Annotated[kind.__origin__, own]


DECLARED: dict[str, Callable[[], Any]] = {}
"""What builds a command, by all words that call it."""


def command(
    name: str, example: str = "", cls: type[Command] = Command
) -> Callable[[_Function], _Function]:
    """Return a decorator that declares a command; the docstring of the function is its help.

    Its parameters are arguments and flags; one may be a dataclass, whose fields are declared in its
    place, so that several commands share them. Every command takes ``--json``.

    Args:
        name: All words that call it: ``ctl get jobs``.
        example: What follows the name in the example that its help shows.
        cls: What reads its words.
    """

    def declare(function: _Function) -> _Function:
        DECLARED[name] = partial(built, name, function, example, cls)
        return function

    return declare


def built(name: str, function: Callable[..., Any], example: str, cls: type) -> Any:
    """Return the command of a function; arguments as of ``command``."""
    epilog = f"Example: {NAME} {name} {example}".rstrip()
    return _built(_spread(function), name=name.rpartition(" ")[2], cls=cls, epilog=epilog)


def find(name: str) -> Any:
    """Return the command of a name, or the group of those whose names begin with it."""
    if name in DECLARED:
        return DECLARED[name]()
    below = [each.removeprefix(f"{name} ") for each in DECLARED if each.startswith(f"{name} ")]
    words = sorted({each.split()[0] for each in below})
    commands = {word: find(f"{name} {word}") for word in words}
    return Group(name=name.rpartition(" ")[2], commands=commands, help=", ".join(commands))


def parse(command: Any, words: Sequence[str], home: Path) -> Any:
    """Return the context of the command that words call, with its values; call nothing.

    Args:
        command: The outermost command.
        words: What follows its name; ``ctx.meta`` keeps them under WORDS.
        home: Folder that is searched for cluster.yaml after the current one: ``ctx.obj``.

    Raises:
        Refusal: Wrong words.
        SystemExit: code 0 after ``--help``.
    """
    with refusing():
        ctx = command.make_context(NAME, list(words), obj=home, **SETTINGS)
        ctx.meta[WORDS] = tuple(words)
        while isinstance(ctx.command, TyperGroup):
            rest = [*ctx._protected_args, *ctx.args]
            if not rest:
                ctx.fail("name a command")
            name, found, rest = ctx.command.resolve_command(ctx, rest)
            ctx = cast("Any", found).make_context(name, rest, parent=ctx)
        return ctx


@contextmanager
def refusing() -> Iterator[None]:
    """Raise Refusal where the block finds words wrong, SystemExit where it has told all."""
    try:
        yield
    except typer.Exit as done:
        raise SystemExit(done.exit_code) from None
    except typer.TyperException as error:
        raise _refused(error) from None


class Refusal(SystemExit):
    """The end of the process with exit code 2, as the command line is wrong; ``error`` says why."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(2)
        self.error = error


def _refused(error: typer.TyperException) -> Refusal:
    """Print why words are wrong; return the end of the process."""
    ctx = getattr(error, "ctx", None)
    path, usage = NAME, None
    if ctx is not None:
        path, usage = ctx.command_path.removesuffix(" run"), ctx.get_usage()
        print(usage, file=sys.stderr)
    message = error.format_message().replace("Value error, ", "")
    if isinstance(error.__cause__, ValidationError):
        problem = error.__cause__.errors()[0]
        message = message.replace(problem["msg"], rule_of(problem)).removesuffix(".")
        message += f"; got {problem['input']!r}"
    if ctx is not None and message.startswith("Missing") and ctx.command.epilog:
        message += f" {ctx.command.epilog}"
    print(f"{path}: error: {message}", file=sys.stderr)
    return Refusal(
        ConfigError(
            message,
            code="wrong-command-line",
            where=path,
            rule=usage,
            remedy=f"{path} --help says what it takes",
        )
    )
