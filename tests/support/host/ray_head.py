"""A head of Ray as an administrator starts it, with a token, ended by the number of its process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.ray.connection.private_instance import own_token
from waferstream.core.units import MIB

_PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "metrics-export-port")


@contextmanager
def ray_head(num_cpus: int) -> Iterator[str]:
    """Run a head; yield the address of its dashboard. This process has its token meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short, for its sockets
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    address = f"http://127.0.0.1:{ports['dashboard-port']}"
    words = [
        *("start", "--head", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1"),
        *(f"--num-cpus={num_cpus}", f"--object-store-memory={256 * MIB}", f"--temp-dir={folder}"),
        *(f"--{name}={port}" for name, port in ports.items()),
    ]
    program = Path(sys.executable).with_name("ray")
    with own_token(), (folder / "head.log").open("wb") as log:
        head = subprocess.Popen([program, *words], stdout=log, stderr=log)
        try:
            _wait_for(f"{address}/api/version", head, folder / "head.log")
            yield address
        finally:
            head.send_signal(signal.SIGTERM)
            head.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, head: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a head answers, at most until the test times out."""
    request = urllib.request.Request(url)
    request.add_header("Authorization", f"Bearer {os.environ['RAY_AUTH_TOKEN']}")
    while True:
        assert head.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
