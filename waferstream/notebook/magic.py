"""``%%waferstream``: run a cell's program on a cluster and show its progress."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from waferstream.notebook.live_progress import shown_progress


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are a line below the cell."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def cell_magic_of(shell: InteractiveShell) -> Callable[[str, str], None]:
    """Return the magic: it runs the program of a cell in the namespace of a shell."""

    def run_cell(line: str, cell: str) -> None:
        """Run the program of a cell on a cluster; its variables stay, the cluster ends."""
        given = _parser().parse_args(shlex.split(line))
        source = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
        name = shell.compile.cache(source, shell.execution_count)
        code = compile(source, name, "exec")
        with shown_progress(), _cluster_of_cell(given):
            exec(code, shell.user_ns)  # noqa: S102  (the user's own cell)

    return run_cell


def _parser() -> _Parser:
    parser = _Parser("%%waferstream", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("--num_csx", type=int, help="systems (default: the program's number)")
    add("--mgmt_address", help="host:port of the cluster (default: one of this computer)")
    add("--credentials_path", type=Path, help="file of the right to use that cluster")
    add("--cluster", type=Path, help="YAML file of a cluster of this computer")
    return parser


@contextmanager
def _cluster_of_cell(given: argparse.Namespace) -> Iterator[None]:
    """Give a program its cluster, and end it afterwards; models keep what they have learnt."""
    from appliance.spec import load_cluster  # noqa: PLC0415  (torch: seconds, not for %load_ext)
    from cstorch.cluster.config import Launch, launch  # noqa: PLC0415
    from cstorch.current import existing_backend  # noqa: PLC0415

    cluster = None if given.cluster is None else load_cluster(given.cluster)
    settings = Launch(
        cluster=cluster,
        is_cluster_typed=cluster is not None,
        num_csx=given.num_csx,
        mgmt_address=given.mgmt_address,
        credentials_path=given.credentials_path,
        is_cell=True,
    )
    token = launch.set(settings)
    try:
        yield
    finally:
        launch.reset(token)
        backend = existing_backend()
        if backend is not None:
            backend.end_idle()
