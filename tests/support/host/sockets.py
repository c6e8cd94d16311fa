"""The ports on which processes listen, as the kernel lists them (proc_net(5))."""

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.chaos.leftovers import LISTENS, sockets_of


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Return address and port of each socket on which one of some processes listens."""
    own = {inode for pid in pids for inode in sockets_of(pid)}
    return {(address, port) for inode, address, port in _ports() if inode in own}


def _ports() -> Iterator[tuple[str, str, int]]:
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == LISTENS:
                yield fields[9], _address(address), int(port, 16)


def _address(text: str) -> str:
    """Return an address whose words of four bytes have the order of this host."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
