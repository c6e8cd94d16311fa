"""This host: the folders that jobs can read, the copies of their data, and completion of words."""

from __future__ import annotations

import os
import shutil
import socket

from typer.completion import get_completion_script  # type: ignore[attr-defined]

from appliance.site import site_defaults
from waferstream.cli.frame.commands import COMPLETE, NAME, command
from waferstream.cli.frame.output import show, tell
from waferstream.core.units import format_bytes


@command("ctl get volumes")
def list_volumes() -> int:
    """List the folders that jobs can read: the file system of their host, and those of the site."""
    site = site_defaults()
    found = {"/": "file system of the host"}
    found |= {str(path): "mount_dirs of the site" for path in site.mount_dirs}
    found |= {str(path): "python_paths of the site" for path in site.python_paths}
    return show(
        [
            {
                "PATH": path,
                "TYPE": about,
                "READABLE": "yes" if os.path.isdir(path) and os.access(path, os.R_OK) else "no",
                "FREE": format_bytes(shutil.disk_usage(path).free) if os.path.isdir(path) else "",
            }
            for path, about in found.items()
        ]
    )


@command("ctl get worker-cache")
def show_worker_cache() -> int:
    """Show copies of data on this host."""
    from cstorch import distributed  # noqa: PLC0415  (torch)

    root = str(distributed.WORKER_CACHE_ROOT)
    _, used, left = distributed.hit_worker_cache_limit(root, root)
    sizes = {"USED": format_bytes(used), "LIMIT": format_bytes(max(0, left))}
    return show([{"NODE": socket.gethostname(), "PATH": root, **sizes}])


@command("ctl clear-worker-cache")
def clear_worker_cache() -> int:
    """Delete the copies of data on this host."""
    from cstorch import distributed  # noqa: PLC0415  (torch)

    shutil.rmtree(distributed.WORKER_CACHE_ROOT, ignore_errors=True)
    host = socket.gethostname()
    return tell(f"Worker cache cleared on {host}", NAME=host)


@command("ctl completion")
def print_completion() -> int:
    """Print what bash needs to complete words: eval "$(waferstream ctl completion)"."""
    script = get_completion_script(prog_name=NAME, complete_var=COMPLETE, shell="bash")
    return tell(script, script=script)
