"""``waferstream batch``: answers to a file of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.serving.computing import MODEL, Computing, needing_packages
from waferstream.host.files import json_text


@command("batch", "model_dir requests.jsonl --out answers.jsonl")
def batch(
    model_dir: Annotated[Path, MODEL],
    file: Annotated[Path, Argument(help="requests, a line of JSON each")],
    out: Annotated[
        Path,
        Option(help="file of the answers, which goes on where it ends; beside it .errors.jsonl"),
    ],
    computing: Computing,
    picture: Annotated[
        Path | None,
        Option(help="drawing of batches whose layers stay, or whose weights stream, .png or .svg"),
    ] = None,
) -> int:
    """Answer a file of requests; the exit code is 1 if some were refused."""
    deployment = computing.deployment(model_dir)
    with needing_packages():
        from waferstream.serving.http.offline import answer_file  # noqa: PLC0415  (an extra)
    summary = answer_file(deployment, file, out, picture)
    print(json_text(summary))
    return 1 if summary.failed else 0
