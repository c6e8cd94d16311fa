"""``waferstream explore``: a page over the simulator, with sliders for model, batch and machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import Cluster, Params, port_flag
from waferstream.cli.frame.output import tell, tell_paths
from waferstream.config.phases import check_sections, load_params
from waferstream.core.outputs import check_folder
from waferstream.host.terminal import log_to_terminal


@command("explore", "params.yaml")
def explore(
    params: Params,
    cluster: Cluster = None,
    port: Annotated[int, port_flag("port of this host; 0 takes a free one")] = 8010,
    export: Annotated[
        Path | None, Option(help="write the page with its answers to a file instead, for a talk")
    ] = None,
) -> int:
    """Open a page on this host, whose sliders move model, batch and machine.

    Curve with its band, causes, wafer, tree, no-stall table and GPUs follow; any setting is copied
    as a command or as YAML.
    """
    if export is not None:
        check_folder(export, "--export")
    check_sections(load_params(params))
    log_to_terminal("WARNING")
    from waferstream.explorer.explorer import Explorer  # noqa: PLC0415  (torch)
    from waferstream.explorer.export import write_page  # noqa: PLC0415
    from waferstream.explorer.server import Server  # noqa: PLC0415

    explorer = Explorer.of_files(params, cluster)
    if export is not None:
        write_page(explorer, export)
        return tell_paths(export)
    server = Server(explorer, port)
    tell(f"Exploring {params} at {server.url}", url=server.url)
    server.serve()
    return 0
