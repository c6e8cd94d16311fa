"""What is left behind is found, and what was there before is not."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import leftovers
from benchmarks.chaos.leftovers import Census

LISTENING = """
import os, socket, sys, time
inner = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
inner.bind("\\0" + sys.argv[1])
outer = socket.create_server(("127.0.0.1", 0))
print(os.getpid(), outer.getsockname()[1], flush=True)
time.sleep(60)
"""


def test_only_what_is_of_the_run_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes below the run, their sockets and ports, unfinished files; none from before."""
    monkeypatch.setattr(leftovers, "_PATIENCE_S", 0.3)
    (tmp_path / "old.partial").touch()
    name = f"waferstream/test-{os.getpid()}/csx-0"
    command = ["bash", "-c", '"$@" & wait', "run", sys.executable, "-c", LISTENING, name]
    with (
        socket.create_server(("127.0.0.1", 0)),  # of this process, which is not below the run
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run,
    ):
        assert run.stdout is not None
        process, port = run.stdout.readline().split()
        census = Census(tmp_path)
        assert census.left() == {}
        census.note_processes(run.pid)
        (tmp_path / "new.partial").touch()
        left = census.left()
        os.kill(int(process), signal.SIGKILL)
    assert left["sockets"] == [f"@{name}", f"port {port}"]
    assert left["files"] == [str(tmp_path / "new.partial")]
    assert [line.split()[0] for line in left["processes"]] == [process]
    (tmp_path / "new.partial").unlink()
    assert census.left() == {}
