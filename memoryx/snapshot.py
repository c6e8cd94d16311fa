"""A copy-on-write snapshot of a server's tensors, which a thread writes while training goes on.

The thread reads the tensors where they are. Whoever is about to change one calls ``protect``
first, which copies it unless it has been written; a part that was being written at that moment is
written again from the copy. So taking a snapshot costs nothing, and an update waits at most for the
copy of the parameters that it changes.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from memoryx.memory import Dram, Memory
from wsc.checkpoint.parts import Part, write_part
from wsc.core.disk import LOCAL_DISK, Disk, OpenFile
from wsc.core.units import MIB

_CHUNK_BYTES = 4 * MIB
_NICENESS = 10  # of the writing thread: kernels go first


@dataclass
class _Entry:
    """One tensor: its bytes (those of a copy, if it was changed), and its place in the file."""

    key: str
    content: np.ndarray  # uint8, one dimension
    dtype: np.dtype
    offset: int
    is_copy: bool = False
    is_written: bool = False


class Snapshot:
    """Tensors of one server while they are written to a checkpoint file.

    Args:
        server: The server's name, for its report.
        path: The file, which has space for every tensor.
        tensors: Contiguous arrays by the name of their parameter and by their key in the file.
        offsets: The place of each tensor in the file, by key.
        is_background: Whether kernels have precedence over the writing.
        disk: The disk of the file.
        memory: Where the tensors lie.
    """

    def __init__(
        self,
        server: str,
        path: Path,
        tensors: Mapping[str, Mapping[str, np.ndarray]],
        offsets: Mapping[str, int],
        is_background: bool,
        disk: Disk = LOCAL_DISK,
        memory: Memory | None = None,
    ) -> None:
        self._server = server
        self._disk = disk
        self._memory = memory or Dram()
        self._path = path
        self._is_background = is_background
        self._lock = threading.Lock()
        self._entries = {
            name: [
                _Entry(key, array.reshape(-1).view(np.uint8), array.dtype, offsets[key])
                for key, array in arrays.items()
                if key in offsets
            ]
            for name, arrays in tensors.items()
        }
        self._copied_bytes = 0
        self._copying_s = 0.0
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the report has been written."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the report has been written."""
        self._thread.join()

    def protect(self, parameters: Collection[str]) -> None:
        """Keep the values that some parameters and their states have now, for the file."""
        if self.is_done:
            return
        start_s = time.perf_counter()
        with self._lock:
            for entry in (e for name in parameters for e in self._entries.get(name, ())):
                if not entry.is_written and not entry.is_copy:
                    entry.content = entry.content.copy()
                    entry.is_copy = True
                    self._copied_bytes += entry.content.nbytes
        self._copying_s += time.perf_counter() - start_s

    def _run(self) -> None:
        if self._is_background:
            with suppress(OSError):  # of this thread alone, on Linux
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            part = self._write()
        except Exception as error:  # whatever it is, the report must say it
            part = Part(error_number=getattr(error, "errno", None) or errno.EIO)
        with suppress(OSError):  # whoever waits for the report calls ``wait``, and misses it
            write_part(self._path, self._server, part, self._disk)

    def _write(self) -> Part:
        crc32: dict[str, int] = {}
        not_finite: list[str] = []
        with self._disk.writing(self._path) as file:
            for entry in (entry for entries in self._entries.values() for entry in entries):
                crc32[entry.key], is_finite = self._write_one(file, entry)
                if not is_finite:
                    not_finite.append(entry.key)
        return Part(
            crc32=crc32,
            not_finite=tuple(not_finite),
            copied_bytes=self._copied_bytes,
            copying_s=self._copying_s,
        )

    def _write_one(self, file: OpenFile, entry: _Entry) -> tuple[int, bool]:
        """Write one tensor; return its checksum, and whether all its values are finite."""
        crc, is_finite, start = 0, True, 0
        while start < entry.content.size:
            content = entry.content
            chunk = content[start : start + _CHUNK_BYTES]
            file.write(chunk, entry.offset + start)
            next_crc = zlib.crc32(chunk.data, crc)
            chunk_is_finite = _all_finite(chunk.view(entry.dtype))
            if not entry.is_copy:
                self._memory.let_go(torch.from_numpy(chunk))
            with self._lock:
                if entry.content is not content:  # it may have changed meanwhile
                    continue
                crc, start = next_crc, start + chunk.size
                is_finite = is_finite and chunk_is_finite
                entry.is_written = start == content.size
        if entry.is_copy:
            entry.content = entry.content[:0]  # its memory is needed no longer
        return crc, is_finite


def _all_finite(values: np.ndarray) -> bool:
    """Return whether there is no NaN or infinity; a sum shows it, unless the sum overflows."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(all="ignore"):
        total = float(values.sum())
    return bool(np.isfinite(total)) or bool(np.isfinite(values).all())
