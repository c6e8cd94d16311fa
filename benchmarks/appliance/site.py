"""A management to measure: started, killed and started again, with its users."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.appliance.small_job import NUM_CSX, SmallJob
from waferstream.management.client.package import pack
from waferstream.management.client.remote import RemoteClient
from waferstream.management.manager.folders import Folders
from waferstream.management.model.job import new_workflow_name
from waferstream.management.model.operations import AddUser, ListWorkflows, ReadVersion, Submit
from waferstream.management.model.workflow import Submission, Workflow

_START_S = 120.0


@dataclass
class Site:
    """A management in a process of its own, on this host.

    Attributes:
        folder: Of its files.
        systems: CS systems.
        groups: MemoryX groups.
        users: How many submit, in turns.
    """

    folder: Path
    systems: int
    groups: int
    users: int

    def __post_init__(self) -> None:
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.folders = Folders(self.folder)
        self.tokens: list[str] = []
        """Of the users, once it has started."""

    def start(self) -> tuple[float, float]:
        """Start the management; return the seconds until it answers, and those of a processor."""
        started_s = time.monotonic()
        numbers = map(str, (self._port, self.systems, self.groups))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.appliance.restless", str(self.folder), *numbers],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None, "it is a pipe"
        self.address, token = self._process.stdout.readline().decode().split()
        self.client = RemoteClient(self.address, token)
        self.client.do(ReadVersion())
        back_s = time.monotonic() - started_s, _processor_s(self._process.pid)
        for number in range(len(self.tokens), self.users):
            self.tokens.append(self.client.do(AddUser(name=f"user-{number}")).token)
        return back_s

    def kill(self) -> None:
        """Kill the management, as a crash of it would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the management; what it has launched goes on."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was started"
        self.client.close()
        self._process.send_signal(number)
        self._process.wait(_START_S)
        assert self._process.stdout is not None, "it is a pipe"
        self._process.stdout.close()

    def submit(self, job: SmallJob, user: int) -> str:
        """Submit a job of a user; return its workflow."""
        package = self.folder / f"{job.folder.name}.zip"
        here = Path.cwd()
        os.chdir(job.folder)
        try:
            pack(Path(), package)
        finally:
            os.chdir(here)
        client = RemoteClient(self.address, self.tokens[user % self.users])
        digest = client.upload(package)
        submission = Submission(
            words=job.words, package=digest, num_csx=NUM_CSX, min_num_csx=1, is_detached=True
        )
        name = client.do(Submit(name=new_workflow_name(), submission=submission)).name
        client.close()
        return name

    def workflows(self) -> list[Workflow]:
        """Return all workflows."""
        return self.client.do(ListWorkflows(all_states=True))


def _processor_s(pid: int) -> float:
    """Return the processor time that a process has taken (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
