"""``waferstream exec`` and ``check``: programs that were written for the real machine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from waferstream.cli.arguments import parse_arguments
from waferstream.cli.frame.commands import Program, command
from waferstream.cli.frame.options import Cluster, machine_of
from waferstream.config.phases import check_sections, load_phases
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.host.standard_streams import outlasting_readers
from waferstream.host.terminal import log_to_terminal
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.training.trace_request import TraceRequest

if TYPE_CHECKING:
    from cstorch.cluster.config import Launch

STEPS = 2

NumCsx = Annotated[int | None, Option(min=1, help="systems, instead of the program's number")]


@command("exec", "--num_csx 4 train.py --epochs 2", Program)
def run_program(
    ctx: typer.Context,
    program: Annotated[
        list[str] | None, Argument(help="program and its arguments", show_default=False)
    ] = None,
    module: Annotated[
        str | None, Option("-m", help="run a module; its arguments follow its name")
    ] = None,
    cluster: Cluster = None,
    num_csx: NumCsx = None,
    mgmt_address: Annotated[
        str | None, Option(help="host:port of a cluster that runs elsewhere")
    ] = None,
    credentials_path: Annotated[
        Path | None, Option(help="file with the right to use that cluster")
    ] = None,
    trace: Annotated[
        Path | None, Option(help="write a Perfetto trace of emulated and measured time")
    ] = None,
    trace_limit: Annotated[
        int, Option(help="most activities of each clock in the trace")
    ] = DEFAULT_LIMIT,
) -> int:
    """Run a program that imports cerebras.pytorch on an emulated cluster."""
    words = program or []
    if module is None and not words:
        ctx.fail("name a program, or a module after -m")
    log_to_terminal("INFO", "vendor")
    if module is None:
        _check_file(words[0], "name the program's file, or a module after -m")
    _check_vendor_names()
    from waferstream.cli.in_process import execute  # noqa: PLC0415  (torch)

    settings = replace(
        _launch(ctx, cluster, num_csx),
        mgmt_address=mgmt_address,
        credentials_path=credentials_path,
    )
    name, *arguments = [module, *words] if module else words
    asked = TraceRequest(trace, trace_limit) if trace else None
    with outlasting_readers():
        return execute(name, arguments, settings, is_module=module is not None, trace=asked)


@command("check", "--num_csx 2 params.yaml", Program)
def check(
    ctx: typer.Context,
    target: Annotated[Path, Argument(help="program, or params file")],
    words: Annotated[
        list[str] | None,
        Argument(help="arguments of the program, or flags of the run", show_default=False),
    ] = None,
    steps: Annotated[int, Option(min=1, help="steps to compare")] = STEPS,
    cluster: Cluster = None,
    num_csx: NumCsx = None,
    json: Annotated[bool, Option(help="print JSON")] = False,
) -> int:
    """Run the first steps of a training beside plain PyTorch on the whole batch.

    Are losses, weights and buffers equal, close, or different? The exit code is 1 if different.
    """
    log_to_terminal("WARNING")
    _check_file(target, "name a program, or a params file (.yaml)")
    is_params = target.suffix in (".yaml", ".yml")
    flags = [*(words or ()), *([f"--num_csx={num_csx}"] if num_csx else [])]
    flags += [f"--cluster={cluster}"] if cluster else []
    if is_params:
        parsed = parse_arguments(["--params", f"{target}", *flags], ctx.obj)
        for params in load_phases(target, parsed.overrides()):
            check_sections(params)
    else:
        _check_vendor_names()
    from waferstream.cli.in_process import execute, report_of, train  # noqa: PLC0415  (torch)

    if is_params:
        run_once = partial(train, target, flags, ctx.obj)
    else:
        run_once = partial(execute, f"{target}", words or (), _launch(ctx, cluster, num_csx))
    folder = target.parent.resolve()
    report = report_of(run_once, folder, steps, is_quiet=json or is_params)
    print(json_text(report.fields()) if json else "\n".join(report.lines()))
    return 1 if report.outcome == "different" else 0


def _check_file(program: Path | str, remedy: str) -> None:
    """Raise ConfigError unless a program is a file, before torch is imported."""
    if not Path(program).is_file():
        raise ConfigError(
            "the program must be a file", code="program-missing", value=program, remedy=remedy
        )


def _check_vendor_names() -> None:
    """Raise ConfigError where a program cannot import the vendor's names."""
    if find_spec("waferstream_compat") is None:
        raise ConfigError(
            "the vendor's names must be installed for programs that import them",
            code="package-missing",
            where="waferstream exec",
            value="waferstream_compat",
            remedy="pip install 'waferstream[compat]' (in a clone: "
            "pip install ./waferstream_compat)",
        )


def _launch(ctx: typer.Context, cluster: Path | None, num_csx: int | None) -> Launch:
    """Return what was typed of a program's cluster."""
    from cstorch.cluster.config import Launch  # noqa: PLC0415  (torch)

    is_typed = str(ctx.get_parameter_source("cluster")).endswith("COMMANDLINE")
    return Launch(machine_of(cluster) if cluster else None, is_typed, num_csx)
