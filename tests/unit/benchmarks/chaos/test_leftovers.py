"""What is left behind is found, and what was there before is not."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import leftovers
from benchmarks.chaos.leftovers import Census


def test_only_what_is_new_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes below the run, our sockets and unfinished files, but not those from before."""
    monkeypatch.setattr(leftovers, "_PATIENCE_S", 0.3)
    (tmp_path / "old.partial").touch()
    name = f"waferstream/test-{os.getpid()}/csx-0"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        census = Census(tmp_path)
        assert census.left() == {}
        census.note_processes(os.getpid())
        (tmp_path / "new.partial").touch()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{name}")
            left = census.left()
        process.kill()
    assert left["sockets"] == [f"@{name}"]
    assert left["partial files"] == [str(tmp_path / "new.partial")]
    assert any(line.startswith(f"{process.pid} ") for line in left["processes"])
    (tmp_path / "new.partial").unlink()
    assert census.left() == {}
