"""``waferstream check``: the first steps of a program or params file beside plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from waferstream.cli.arguments import parse_arguments
from waferstream.cli.execute import NUM_CSX
from waferstream.cli.frame.commands import Program, command
from waferstream.cli.frame.files import Cluster, cluster_file
from waferstream.cli.vendor_names import check_vendor_names
from waferstream.config.phases import check_sections, load_phases
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.host.terminal import log_to_terminal

STEPS = 2


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
    num_csx: Annotated[int | None, NUM_CSX] = None,
    json: Annotated[bool, Option(help="print JSON")] = False,
) -> int:
    """Run the first steps of a training beside plain PyTorch on the whole batch.

    Are losses, weights and buffers equal, close, or different? The exit code is 1 if different.
    """
    log_to_terminal("WARNING")
    is_params = target.suffix in (".yaml", ".yml")
    flags = [*(words or ()), *([f"--num_csx={num_csx}"] if num_csx else [])]
    flags += [f"--cluster={cluster}"] if cluster else []
    _check_target(target, flags if is_params else None, ctx.obj)
    from appliance.spec import load_cluster  # noqa: PLC0415
    from cstorch.cluster.config import Launch  # noqa: PLC0415  (torch)
    from waferstream.cli.checking import report_of, run_program, train  # noqa: PLC0415

    if is_params:
        run_once = partial(train, target, flags, ctx.obj)
    else:
        machine = cluster_file(cluster, (Path(), ctx.obj))
        settings = Launch(load_cluster(machine) if machine else None, cluster is not None, num_csx)
        run_once = partial(run_program, f"{target}", words or (), settings)
    folder = target.parent.resolve()
    report = report_of(run_once, folder, steps, is_quiet=json or is_params)
    print(json_text(report.fields()) if json else "\n".join(report.lines()))
    return 1 if report.outcome == "different" else 0


def _check_target(target: Path, flags: Sequence[str] | None, home: Path) -> None:
    """Raise ConfigError where nothing can be checked, before torch is imported.

    Args:
        target: The program, or the params file.
        flags: Those of a params file; None for a program.
        home: Folder that is searched for cluster.yaml after the current one.
    """
    if not target.is_file():
        raise ConfigError(
            "the program must be a file",
            code="program-missing",
            value=target,
            remedy="name a program, or a params file (.yaml)",
        )
    if flags is None:
        check_vendor_names()
    else:
        parsed = parse_arguments(["--params", f"{target}", *flags], home)
        for params in load_phases(target, parsed.overrides()):
            check_sections(params)
