"""Read event files for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def events(path: Path) -> list[Event]:
    """Return the records of an event file: length (8 bytes), checksum (4), data, checksum (4)."""
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def scalars(path: Path) -> list[tuple[str, float, int]]:
    """Return name, value and step of every scalar of an event file."""
    return [
        (value.tag, value.simple_value, event.step)
        for event in events(path)
        for value in event.summary.value
    ]
