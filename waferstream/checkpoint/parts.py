"""What each weight server reports about its part of a checkpoint file.

A server writes its tensors into the file by itself, also while it trains, so its report is a file,
too: ``<file>.<server>`` beside it. Whoever has started the save completes the file when all
reports are there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from waferstream.host.disk import LOCAL_DISK, Disk


class Part(BaseModel):
    """Checksums of the tensors that one server has written, or why it could not.

    ``not_finite`` names tensors that hold NaN or infinity. ``copied_bytes`` and ``copying_s`` are
    what the training had to wait for: tensors that changed before they were written. ``began_ns``
    and ``ended_ns`` are times of day.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    crc32: dict[str, int] = {}
    not_finite: tuple[str, ...] = ()
    copied_bytes: int = 0
    copying_s: float = 0.0
    error_number: int | None = None
    num_bytes: int = 0
    began_ns: int = 0
    ended_ns: int = 0

    def check(self) -> None:
        """Raise the OSError that the server had, if any."""
        if self.error_number is not None:
            raise OSError(self.error_number, os.strerror(self.error_number))


def write_part(path: Path, server: str, part: Part, disk: Disk = LOCAL_DISK) -> None:
    """Write the report of one server about its part of the file ``path``, at once."""
    disk.replace_text(part_path(path, server), part.model_dump_json())


def has_parts(path: Path, servers: Iterable[str]) -> bool:
    """Return whether all servers have reported."""
    return all(part_path(path, server).exists() for server in servers)


def read_parts(path: Path, servers: Iterable[str]) -> list[Part]:
    """Return the reports of all servers.

    Raises:
        OSError: A server could not write, or its report is missing or damaged.
    """
    try:
        parts = [
            Part.model_validate_json(part_path(path, server).read_bytes()) for server in servers
        ]
    except ValidationError as error:
        raise OSError(errno.EIO, "the report of a weight server is damaged") from error
    for part in parts:
        part.check()
    return parts


def remove_parts(path: Path, servers: Iterable[str]) -> None:
    """Remove the reports about a file."""
    for server in servers:
        part_path(path, server).unlink(missing_ok=True)


def part_path(path: Path, server: str) -> Path:
    """Return the path of a server's report about a file."""
    return path.with_name(f"{path.name}.{server}")
