"""A slow link in user space: ``python -m benchmarks.hosts.relay TAP TAP DELAY_MS MEGABITS``.

Makes two TAP devices (Documentation/networking/tuntap.rst of Linux) in its network namespace and
passes each frame that leaves by one to the other, some time later and at most at a rate, until its
standard input ends. For kernels without ``netem``.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

_TUN_SET_INTERFACE, _TAP, _NO_PACKET_INFORMATION = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
_REQUEST = struct.Struct("16sH22x")  # struct ifreq of netdevice(7): name, flags
_MOST_FRAME_BYTES = 1 << 16
_FRAMES_AT_ONCE = 64
_BITS_PER_BYTE = 8

MOST_QUEUED = 1000
"""Frames of a line beyond which further ones are dropped, as by default of tc-netem(8)."""


class Line:
    """One direction of a link, as a queue in time: for frames of one thread.

    Args:
        delay_s: How long a frame travels after its last bit has been sent.
        bits_per_s: How fast bits are sent.
    """

    def __init__(self, delay_s: float, bits_per_s: float) -> None:
        self._delay_s = delay_s
        self._bits_per_s = bits_per_s
        self._sent_s = 0.0  # when the last frame has been sent
        self._frames: deque[tuple[float, bytes]] = deque()  # each with its time of arrival

    @property
    def next_s(self) -> float:
        """Time of the next arrival; infinite if none is due."""
        return self._frames[0][0] if self._frames else float("inf")

    def offer(self, frame: bytes, now_s: float) -> None:
        """Send a frame as soon as the earlier ones are sent, or drop it if too many wait."""
        if len(self._frames) < MOST_QUEUED:
            begin_s = max(now_s, self._sent_s)
            self._sent_s = begin_s + len(frame) * _BITS_PER_BYTE / self._bits_per_s
            self._frames.append((self._sent_s + self._delay_s, frame))

    def arrived(self, now_s: float) -> Iterator[bytes]:
        """Yield the frames that have arrived by a time, and forget them."""
        while self.next_s <= now_s:
            yield self._frames.popleft()[1]


def main() -> None:
    """Relay between the devices that the command line names."""
    names, delay_s, bits_per_s = sys.argv[1:3], float(sys.argv[3]) / 1e3, float(sys.argv[4]) * 1e6
    ends = [_open_tap(name) for name in names]
    print("up", flush=True)
    _relay(ends, [Line(delay_s, bits_per_s) for _ in ends])


def _relay(ends: Sequence[int], lines: Sequence[Line]) -> None:
    """Pass on the frames of each end through its line, until the standard input ends."""
    while True:
        left_s = min(line.next_s for line in lines) - time.monotonic()
        timeout_s = None if left_s == float("inf") else max(0.0, left_s)
        ready, _, _ = select.select([*ends, sys.stdin], [], [], timeout_s)
        if sys.stdin in ready:
            return
        now_s = time.monotonic()
        for end, other, line in zip(ends, reversed(ends), lines, strict=True):
            if end in ready:
                for frame in _frames(end):
                    line.offer(frame, now_s)
            for frame in line.arrived(now_s):
                with suppress(OSError):  # the other device is down: the frame is lost
                    os.write(other, frame)


def _frames(end: int) -> Iterator[bytes]:
    """Yield frames that wait at a device."""
    with suppress(BlockingIOError):
        for _ in range(_FRAMES_AT_ONCE):
            yield os.read(end, _MOST_FRAME_BYTES)


def _open_tap(name: str) -> int:
    """Make a TAP device that lives as long as the process, and return its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = _REQUEST.pack(name.encode(), _TAP | _NO_PACKET_INFORMATION)
    fcntl.ioctl(descriptor, _TUN_SET_INTERFACE, request)
    return descriptor


if __name__ == "__main__":
    main()
