"""``waferstream explore``: a page over the simulator, with sliders for model, batch and machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from waferstream.cli.tools.command import Command, argument, tell_paths
from waferstream.host.terminal import log_to_terminal


def _explore(given: argparse.Namespace) -> int:
    """Serve the page until it is interrupted, or write it to a file."""
    log_to_terminal("WARNING")
    # torch
    from waferstream.explorer.explorer import Explorer  # noqa: PLC0415
    from waferstream.explorer.export import export  # noqa: PLC0415
    from waferstream.explorer.server import Server  # noqa: PLC0415

    explorer = Explorer.of_files(given.params, given.cluster)
    if given.export is not None:
        export(explorer, given.export)
        return tell_paths(given, given.export)
    server = Server(explorer, given.port)
    print(f"Exploring {given.params} at {server.url}", flush=True)
    server.serve()
    return 0


COMMANDS = (
    Command(
        "",
        "open a page on this host with sliders for systems, batch, model and machine: curve, "
        "wafer, tree, stalls and GPUs follow. Example: waferstream explore params.yaml",
        _explore,
        (
            argument("params", type=Path, help="YAML file with model, optimizer, data and loop"),
            argument(
                "--cluster", type=Path, help="YAML file of the machine (default: cluster.yaml)"
            ),
            argument("--port", type=int, default=8010, help="0 takes a free one (default: 8010)"),
            argument(
                "--export",
                type=Path,
                metavar="PAGE.HTML",
                help="write the page with its answers to a file instead, for a talk or a paper",
            ),
        ),
    ),
)
