"""Slurm over hosts in miniature: its daemons on each host, and the folder in which jobs are submitted."""

from __future__ import annotations

from pathlib import Path

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.slurm import munge, program, write_configuration


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
    (folder / "home").mkdir()
    nodes = "\n".join(
        f"NodeName=host-{host} NodeAddr={address} CPUs=2" for host, address in enumerate(addresses)
    )
    write_configuration(folder, f"host-0({addresses[0]})", nodes)
    for host in range(hosts.count):
        names = folder / f"hosts-{host}"
        own = [*addresses[:host], "127.0.1.1", *addresses[host + 1 :]]
        lines = [f"{each} host-{other}\n" for other, each in enumerate(own)]
        names.write_text("127.0.0.1 localhost\n" + "".join(lines))
        hosts.run(host, ["mount", "--bind", str(names), "/etc/hosts"])
    hosts.run(0, munge(folder))  # the hosts share it, as they share its socket
    hosts.run(0, [program("slurmctld")])
    for host in range(hosts.count):
        hosts.run(host, [program("slurmd"), "-N", f"host-{host}"])
