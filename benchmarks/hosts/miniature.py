"""Hosts in miniature: network namespaces of this computer, each with an address of its own.

Every host has its own network, process numbers, /tmp, /dev/shm and home folder, and nothing of
another host's; what lies elsewhere (the code, the virtual environment) is common.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Self

from benchmarks.hosts.network import REPOSITORY, Network

_PORT = 6379
_START_S = 60.0
_OBJECT_STORE_BYTES = 100 << 20
_IDLE_CPU_S = 0.3  # of all hosts, in a second
_QUIET_LOOKS = 3
_LONGEST_SETTLING = 120
_USER_TICKS, _SYSTEM_TICKS = 11, 12  # utime and stime of proc_pid_stat(5), behind the name

_UNSHARE = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc")

# The first process of a namespace of processes inherits orphans, which bash reaps, and when it ends
# the kernel kills all others.
_FIRST_PROCESS = "echo $$ up; while :; do sleep 3600 & wait $!; done"


class MiniatureHosts:
    """Hosts with one Ray cluster over all of them; host 0 has the head and runs drivers.

    Args:
        count: Number of hosts.
        cpus: CPUs that each host offers to Ray.
        shared: Folders below /tmp that all hosts see, as on a shared file system.
        labels: Ray's labels of each host.
        environment: Additional variables of every process.
        variables: Additional variables of the processes of each host.
    """

    def __init__(
        self,
        count: int,
        *,
        cpus: Sequence[int] = (),
        shared: Sequence[Path] = (),
        labels: Sequence[Mapping[str, str]] = (),
        environment: Mapping[str, str] | None = None,
        variables: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._cpus = list(cpus) or [2] * count
        self._labels = list(labels) or [{}] * count
        self._shared = [*shared, REPOSITORY]
        self._environment = dict(environment or {})
        self._of_hosts = list(variables) or [{}] * count
        self._undo = ExitStack()
        self._first: list[int] = []  # process number of the first process of each host
        self.count = count

    def __enter__(self) -> Self:
        try:
            self._folder = Path(mkdtemp(prefix="hosts-", dir="/run"))
            self._undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self.network = Network(self._undo)
            for host in range(self.count):
                self.network.add(host)
                self._start_first_process(host)
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    @property
    def ray_address(self) -> str:
        """Address of the head of Ray."""
        return f"{self.network.address(0)}:{_PORT}"

    def folder(self, host: int) -> Path:
        """Return where a host's /tmp lies for this process."""
        return self._folder / str(host) / "tmp"

    def start_ray(self) -> None:
        """Start one Ray cluster over all hosts, with a token."""
        token = ["ray", "get-auth-token", "--generate"]
        self.run(0, token)
        home = self._folder / "0" / "home" / ".ray"
        for host in range(1, self.count):
            shutil.copytree(home, self._folder / str(host) / "home" / ".ray")
        self.join(0)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.join, range(1, self.count)))

    def settle(self) -> None:
        """Wait until the hosts are idle: Ray starts workers before anybody needs them."""
        before, quiet = self.cpu_seconds(), 0
        for _ in range(_LONGEST_SETTLING):
            time.sleep(1.0)
            now = self.cpu_seconds()
            quiet = quiet + 1 if now - before < _IDLE_CPU_S else 0
            if quiet == _QUIET_LOOKS:
                return
            before = now

    def join(self, host: int) -> None:
        """Start Ray on a host; on the first one its head."""
        role = [f"--address={self.ray_address}"]
        if host == 0:
            role = ["--head", f"--port={_PORT}", "--include-dashboard=false"]
        common = [
            f"--node-ip-address={self.network.address(host)}",
            f"--num-cpus={self._cpus[host]}",
            f"--object-store-memory={_OBJECT_STORE_BYTES}",
            f"--labels={json.dumps(dict(self._labels[host]))}",
            "--disable-usage-stats",
        ]
        self.run(host, ["ray", "start", *role, *common], timeout_s=_START_S)

    def run(
        self, host: int, command: Sequence[str], timeout_s: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end.

        Raises:
            RuntimeError: It fails; the error has its output.
        """
        done = self.attempt(host, command, timeout_s)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}")
        return done

    def attempt(
        self,
        host: int,
        command: Sequence[str],
        timeout_s: float = 300.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end, whatever its exit code is."""
        with self.start(host, command, environment) as process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, None)

    def start(
        self, host: int, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command on a host with pipes; standard error goes to that of the output.

        Args:
            host: The host.
            command: The program, which may be one of the virtual environment, and its arguments.
            environment: Variables that differ from those of all processes; empty ones are removed.
        """
        program = Path(sys.executable).parent / command[0]
        words = [str(program) if program.exists() else command[0], *command[1:]]
        enter = ["nsenter", f"--target={self._first[host]}", "--net", "--pid", "--mount"]
        variables = {**self._variables(host), **(environment or {})}
        return subprocess.Popen(
            [*enter, "--uts", "--ipc", f"--wdns={REPOSITORY}", *words],
            env={name: value for name, value in variables.items() if value},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def sent_bytes(self) -> list[int]:
        """Return how many bytes each host has sent to the others so far."""
        return [self.network.sent_bytes(host) for host in range(self.count)]

    def cpu_seconds(self) -> float:
        """Return the processor time of all processes that live on the hosts now."""
        spaces = {os.stat(f"/proc/{first}/ns/pid").st_ino for first in self._first}
        ticks = 0
        for entry in Path("/proc").glob("[1-9]*"):
            with suppress(OSError):  # it has ended
                if (entry / "ns" / "pid").stat().st_ino in spaces:
                    words = (entry / "stat").read_text().rpartition(") ")[2].split()
                    ticks += int(words[_USER_TICKS]) + int(words[_SYSTEM_TICKS])
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self, host: int) -> None:
        """End a host with all its processes, as a loss of power does."""
        os.kill(self._first[host], signal.SIGKILL)
        self.network.cut(host)

    def _start_first_process(self, host: int) -> None:
        own = self._folder / str(host)
        (own / "home").mkdir(parents=True)
        (own / "tmp").mkdir(mode=0o1777)
        lines = [f"mount --bind {own / 'tmp'} {own / 'tmp'}"]
        for path in self._shared:
            if path.is_relative_to("/tmp"):
                place = own / path.relative_to("/")
                lines += [f"mkdir -p {place}", f"mount --bind {path} {place}"]
        lines += [
            f"mount --rbind {own / 'tmp'} /tmp",
            "mount -t tmpfs -o size=4g tmpfs /dev/shm",
            f"hostname host-{host}",
            _FIRST_PROCESS,
        ]
        enter = [
            "ip",
            "netns",
            "exec",
            self.network.namespace(host),
            "unshare",
            "--mount",
            "--uts",
            "--ipc",
        ]
        process = subprocess.Popen(
            [*enter, *_UNSHARE, "bash", "-ec", "\n".join(lines)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # unshare complains of the signals that it waits for
            text=True,
        )
        self._undo.callback(_end, process)
        assert process.stdout is not None
        if "up" not in process.stdout.readline():
            raise RuntimeError(f"host {host} does not start")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        self._first.append(int(children))

    def _variables(self, host: int) -> dict[str, str]:
        """Return the variables of a host's processes."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(self._folder / str(host) / "home"),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_worker_niceness": "0",
            **self._environment,
            **self._of_hosts[host],
        }


def _end(process: subprocess.Popen[str]) -> None:
    """End a host's first process, and with it all others of the host."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if children.exists() and (numbers := children.read_text().split()):
        os.kill(int(numbers[0]), signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    time.sleep(0.1)  # the kernel ends the others
