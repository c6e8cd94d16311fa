"""A server of clusters in this process, and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.coordinator.cluster import Cluster
from appliance.plan import ClusterPlan
from appliance.remote.access import Access
from appliance.remote.host import ClusterHost
from appliance.remote.server import serving
from appliance.spec import ClusterSpec
from appliance.starting import start_cluster
from tests.support.runs.tiny_run import ROOT

LEASE_S = 20.0


@contextmanager
def lent(
    spec: ClusterSpec,
    lease_s: float = LEASE_S,
    start: Callable[[ClusterPlan], Cluster] = start_cluster,
) -> Iterator[Access]:
    """Lend clusters from a thread of this process, where no program can interrupt a command."""
    host, over = ClusterHost(spec, lease_s, start), threading.Event()
    with serving(host, "127.0.0.1:0", lease_s) as access:
        thread = threading.Thread(target=host.serve, args=(over.is_set,))
        thread.start()
        try:
            yield access
        finally:
            over.set()
            thread.join()


@contextmanager
def server_process(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``waferstream cluster serve`` with a local cluster; yield the process and its address."""
    cluster = folder / "cluster.yaml"
    cluster.write_text("runtime: {kind: local}\n")
    command = [sys.executable, "-m", "waferstream", "cluster", "serve", "--cluster", str(cluster)]
    process = subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[0]
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
