"""Commands that still parse their words by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from waferstream.cli.frame.commands import App, Command


class Passing(Command):
    """A command that gets its words as they are."""

    has_printing_flags = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words."""
        return super().parse_args(ctx, ["--", *args])


def passing(name: str, run: Callable[[Sequence[str], Path], int]) -> Any:
    """Return a command that hands its words to ``run(words, home)``."""
    app = App()

    def call(ctx: typer.Context, words: list[str] = typer.Argument(None)) -> int:  # noqa: B008
        return run(words or [], ctx.obj)

    app.command(name, cls=Passing, add_help_option=False)(call)
    return app.built()


def older_command(name: str) -> Any:
    """Return a command of argparse by its name."""
    from waferstream.cli.management import run_management  # noqa: PLC0415
    from waferstream.cli.serving import run_serving  # noqa: PLC0415

    def serving(words: Sequence[str], _home: Path) -> int:
        return run_serving([name, *words])

    def management(words: Sequence[str], _home: Path) -> int:
        return run_management(words)

    runs = {"exec": _execute, "check": _check, "management": management}
    return passing(name, runs.get(name, serving))


def _execute(words: Sequence[str], home: Path) -> int:
    from waferstream.cli.execute import check_exec, parse_exec  # noqa: PLC0415
    from waferstream.host.standard_streams import outlasting_readers  # noqa: PLC0415
    from waferstream.host.terminal import log_to_terminal  # noqa: PLC0415

    arguments = parse_exec(words, home)
    log_to_terminal("INFO", "vendor")
    check_exec(arguments)
    from waferstream.cli.programs import execute  # noqa: PLC0415  (torch)

    with outlasting_readers():
        return execute(arguments)


def _check(words: Sequence[str], home: Path) -> int:
    """Check a program or params file, print the report; return 1 if a step is different."""
    from waferstream.cli.check import check_target, parse_check  # noqa: PLC0415
    from waferstream.host.files import json_text  # noqa: PLC0415
    from waferstream.host.terminal import log_to_terminal  # noqa: PLC0415

    arguments = parse_check(words, home)
    log_to_terminal("WARNING")
    check_target(arguments)
    from waferstream.cli.checking import report_of  # noqa: PLC0415  (torch)

    report = report_of(arguments)
    print(json_text(report.fields()) if arguments.prints_json else "\n".join(report.lines()))
    return 1 if report.outcome == "different" else 0
