"""Slurm over hosts in miniature: its daemons on each host, and the folder in which jobs are submitted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.hosts.miniature import MiniatureHosts

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel")
_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"

# proctrack/linuxproc and task/none need no control groups, which belong to the whole computer.
_CONFIGURATION = """
ClusterName=miniature
SlurmctldHost=host-0({head})
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
    return f"{', '.join(missing)} not installed" if missing else None


def variables(folder: Path) -> dict[str, str]:
    """Return the variables of processes on the hosts: the home folder is common, as on most clusters."""
    return {
        "HOME": str(folder / "home"),
        "SLURM_CONF": str(folder / "slurm.conf"),
        "RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION": "0.01",
    }


def start_slurm(hosts: MiniatureHosts, folder: Path) -> None:
    """Start Slurm on all hosts; its daemons end with them.

    Each host knows its own name as 127.0.1.1, as Debian sets it up, and those of the others by address.

    Args:
        hosts: The hosts, whose processes have ``variables(folder)``.
        folder: A folder that all hosts see, for files of Slurm and the common home folder.
    """
    addresses = [hosts.network.address(host) for host in range(hosts.count)]
    for name in ("home", "state"):
        (folder / name).mkdir()
    nodes = "\n".join(
        f"NodeName=host-{host} NodeAddr={address} CPUs=2" for host, address in enumerate(addresses)
    )
    configuration = _CONFIGURATION.format(head=addresses[0], folder=folder, nodes=nodes)
    (folder / "slurm.conf").write_text(configuration)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    for host in range(hosts.count):
        names = folder / f"hosts-{host}"
        own = [*addresses[:host], "127.0.1.1", *addresses[host + 1 :]]
        lines = [f"{each} host-{other}\n" for other, each in enumerate(own)]
        names.write_text("127.0.0.1 localhost\n" + "".join(lines))
        hosts.run(host, ["mount", "--bind", str(names), "/etc/hosts"])
    _start_munge(hosts, folder)
    hosts.run(0, [_program("slurmctld")])
    for host in range(hosts.count):
        hosts.run(host, [_program("slurmd"), "-N", f"host-{host}"])


def _start_munge(hosts: MiniatureHosts, folder: Path) -> None:
    """Start what authenticates users to Slurm; the hosts share it, as they share its socket."""
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    flags = [f"--{flag}={folder / 'munge'}.{ending}" for flag, ending in files.items()]
    hosts.run(0, [_program("munged"), "--force", f"--key-file={key}", *flags])


def _program(name: str) -> str:
    """Return the path of a program that may lie outside of a user's PATH."""
    return str(shutil.which(name, path=_PATH))
