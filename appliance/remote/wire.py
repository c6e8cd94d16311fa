"""What travels between a program and its cluster: calls of one service, and parcels in frames.

A call sends one parcel and gets one: a line of JSON, then the bytes that it announces, in frames
below gRPC's limit for a message. Neither side holds more than the parcel that it asked for.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waferstream.core.errors import ApplianceCorruptionError, ApplianceResourceExhausted
from waferstream.core.units import GIB, MIB, format_bytes
from waferstream.version import VERSION

SERVICE = "waferstream.attached.v1.Cluster"
VERSIONS = f"{VERSION} on Python {'.'.join(platform.python_version_tuple()[:2])}"
"""What must be equal on both sides: commands are pickles, which carry compiled Python."""

TOKEN, SESSION, VERSION_KEY = "token", "session", "version"
"""Keys of the metadata of every call."""

MOST_BYTES = 4 * GIB
"""The largest parcel; tensors of a model travel in parts that are much smaller."""

_FRAME_BYTES = 2 * MIB
_MOST_BUFFERS = 1_000_000
_SILENCE_MS = 10_000
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", _SILENCE_MS),
    ("grpc.keepalive_timeout_ms", _SILENCE_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _SILENCE_MS // 2),
)
"""Of both sides: no proxy, and a silent host is noticed."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Parcel:
    """The content of a call or an answer: plain data, and buffers."""

    head: Mapping[str, Any] = field(default_factory=dict)
    buffers: Sequence[Buffer] = ()

    def frames(self) -> Iterator[bytes]:
        """Yield the frames of the parcel."""
        views = [memoryview(buffer).cast("B") for buffer in self.buffers]
        yield json.dumps({**self.head, "sizes": [view.nbytes for view in views]}).encode()
        for view in views:
            for start in range(0, view.nbytes, _FRAME_BYTES):
                yield bytes(view[start : start + _FRAME_BYTES])


def received(frames: Iterable[bytes]) -> Parcel:
    """Return the parcel that comes in frames.

    Raises:
        ApplianceCorruptionError: They are none.
        ApplianceResourceExhausted: It is too large; nothing of it is held.
    """
    incoming = iter(frames)
    head, sizes = _head(next(incoming, b""))
    if sum(sizes) > MOST_BYTES or len(sizes) > _MOST_BUFFERS:
        raise ApplianceResourceExhausted(
            "a command is too large for one call",
            code="parcel-too-large",
            value=f"{format_bytes(sum(sizes))} in {len(sizes):,} buffers",
            rule=f"at most {format_bytes(MOST_BYTES)}",
            remedy="let the loader read its data where the cluster runs, not bring it along",
        )
    return Parcel(head, [_filled(size, incoming) for size in sizes])


def _head(frame: bytes) -> tuple[dict[str, Any], list[int]]:
    """Return the data of a first frame, and the sizes of the buffers that follow."""
    try:
        head = json.loads(frame)
        sizes = head.pop("sizes")
    except (ValueError, KeyError, AttributeError) as error:
        raise _damaged("its first frame is no head") from error
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise _damaged("it announces no sizes")
    return head, sizes


def _filled(size: int, frames: Iterator[bytes]) -> bytearray:
    """Return the next buffer; a frame belongs to one buffer."""
    buffer, filled = bytearray(), 0
    while filled < size:
        frame = next(frames, b"")
        if not frame or len(frame) > size - filled:
            raise _damaged(f"{filled:,} of {size:,} bytes of a buffer have come")
        buffer += frame
        filled += len(frame)
    return buffer


def _damaged(how: str) -> ApplianceCorruptionError:
    return ApplianceCorruptionError(
        "what came from the other side is no parcel", code="parcel-damaged", value=how
    )


def file_frames(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in frames."""
    with path.open("rb") as file:
        while frame := file.read(_FRAME_BYTES):
            yield frame


def write_frames(path: Path, frames: Iterable[bytes]) -> None:
    """Write frames to a file."""
    with path.open("wb") as file:
        file.writelines(frames)
