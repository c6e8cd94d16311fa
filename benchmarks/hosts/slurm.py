"""A Slurm of several nodes on this host: real daemons, which end with a block of the program."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "srun")
_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
_LOOK_S, _START_S = 0.1, 60.0

# proctrack/linuxproc and task/none need no control groups, which belong to the whole computer.
_CONFIGURATION = """
ClusterName=miniature
SlurmctldHost={head}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def refusal() -> str | None:
    """Return why Slurm cannot be started here, None if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return None if os.geteuid() == 0 else "Slurm's daemons need root"


def program(name: str) -> str:
    """Return the path of a program that may lie outside of a user's PATH."""
    return str(shutil.which(name, path=_PATH))


def write_configuration(folder: Path, head: str, nodes: str, more: str = "") -> None:
    """Write slurm.conf, and the key by which its daemons know each other.

    Args:
        folder: Of all files of Slurm; every node sees it.
        head: Name of the host of slurmctld, and its address in parentheses.
        nodes: The lines of the nodes.
        more: Further lines.
    """
    (folder / "state").mkdir()
    text = _CONFIGURATION.format(head=head, folder=folder, nodes=nodes)
    (folder / "slurm.conf").write_text(f"{text}{more}\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))


def munge(folder: Path) -> list[str]:
    """Return the command that authenticates users to Slurm; the nodes share its socket."""
    files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    flags = [f"--{flag}={folder / 'munge'}.{ending}" for flag, ending in files.items()]
    return [program("munged"), "--force", f"--key-file={folder / 'munge.key'}", *flags]


@contextmanager
def slurm(
    folder: Path, num_nodes: int, cpus: int = 2, more: str = ""
) -> Iterator[Mapping[str, str]]:
    """Run a Slurm of this host alone; yield the variables of its users.

    Args:
        folder: An empty folder with a short path.
        num_nodes: Nodes, with a slurmd each.
        cpus: What each node says to have.
        more: Further lines of slurm.conf.
    """
    host = socket.gethostname().partition(".")[0]
    first, *others = _free_ports(num_nodes + 1)
    nodes = "\n".join(
        f"NodeName=node-{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}"
        for index, port in enumerate(others)
    )
    write_configuration(folder, f"{host}(127.0.0.1)", nodes, f"SlurmctldPort={first}\n{more}")
    variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    log = folder / "daemons.log"
    with ExitStack() as stack:
        stack.enter_context(_running([*munge(folder), "--foreground"], variables, log))
        _wait((folder / "munge.socket").exists, log)
        stack.enter_context(_running([program("slurmctld"), "-D"], variables, log))
        for index in range(num_nodes):
            words = [program("slurmd"), "-D", "-N", f"node-{index}"]
            stack.enter_context(_running(words, variables, log))
        _wait(lambda: _idle_nodes(variables) == num_nodes, log)
        yield variables


@contextmanager
def _running(words: list[str], variables: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run a daemon during the block."""
    with log.open("ab") as file:
        daemon = subprocess.Popen(words, env=variables, stdout=file, stderr=file)
    try:
        yield
    finally:
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _idle_nodes(variables: Mapping[str, str]) -> int:
    words = [program("sinfo"), "--noheader", "--Node", "--states=idle", "--responding"]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    return len(done.stdout.splitlines())


def _wait(is_so: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(log.read_text())
        time.sleep(_LOOK_S)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
