"""``waferstream exec``: run a program that was written for the real machine, unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from waferstream.cli.frame.commands import Program, command
from waferstream.cli.frame.files import Cluster, cluster_file
from waferstream.cli.vendor_names import check_vendor_names
from waferstream.core.errors import ConfigError
from waferstream.host.standard_streams import outlasting_readers
from waferstream.host.terminal import log_to_terminal
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.training.trace_request import TraceRequest

NUM_CSX = Option(min=1, help="systems, instead of the program's number")


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
    num_csx: Annotated[int | None, NUM_CSX] = None,
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
        _check_file(words[0])
    check_vendor_names()
    from appliance.spec import load_cluster  # noqa: PLC0415
    from cstorch.cluster.config import Launch  # noqa: PLC0415  (torch)
    from waferstream.cli.programs import execute  # noqa: PLC0415

    machine = cluster_file(cluster, (Path(), ctx.obj))
    settings = Launch(
        cluster=load_cluster(machine) if machine else None,
        is_cluster_typed=cluster is not None,
        num_csx=num_csx,
        mgmt_address=mgmt_address,
        credentials_path=credentials_path,
    )
    name, *arguments = [module, *words] if module else words
    asked = TraceRequest(trace, trace_limit) if trace else None
    with outlasting_readers():
        return execute(name, arguments, settings, is_module=module is not None, trace=asked)


def _check_file(program: str) -> None:
    """Raise ConfigError unless a program is a file."""
    if not Path(program).is_file():
        raise ConfigError(
            "the program must be a file",
            code="program-missing",
            value=program,
            remedy="name the program's file, or a module after -m",
        )
