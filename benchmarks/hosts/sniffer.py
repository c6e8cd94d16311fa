"""Everything that crosses a switch, as bytes: ``python -m benchmarks.hosts.sniffer FILE``.

Runs in the network namespace of a switch until its standard input ends. Each packet is appended to
FILE as it is on the wire; at the end the number of packets that were missed is printed.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
from pathlib import Path

_ALL_PROTOCOLS = 0x0003  # ETH_P_ALL (linux/if_ether.h)
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/socket.h, linux/if_packet.h
_STATISTICS = struct.Struct("II")  # received, dropped
_ROOM_BYTES = 256 << 20
_LARGEST_PACKET = 1 << 18


def main() -> None:
    """Copy packets to the file that the command line names."""
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as wire,
        Path(sys.argv[1]).open("wb") as file,
    ):
        wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM_BYTES)
        print("listening", flush=True)
        while True:
            ready, _, _ = select.select([wire, sys.stdin], [], [])
            if wire in ready:
                file.write(wire.recv(_LARGEST_PACKET))
            elif sys.stdin in ready:
                break
        statistics = wire.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        print(_STATISTICS.unpack(statistics)[1])


if __name__ == "__main__":
    main()
