"""A copy-on-write snapshot of a server's tensors, which a thread writes while training goes on.

The thread reads the tensors where they are, or copies them first, which is several times faster
than to write them. Whoever is about to change one calls ``protect``, which copies what is neither
written nor copied; a part that was being written at that moment is written again from the copy. So
an update waits at most for the copy of the parameters that it changes. Where there is no room for
a copy, it waits until the thread has written the tensor, which comes next then.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from memoryx.memory.memory import Dram, Memory
from waferstream.checkpoint.parts import Part, write_part
from waferstream.core.units import MIB
from waferstream.host.disk import LOCAL_DISK, Disk, OpenFile

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


class CopyRoom:
    """Memory for the copies of one snapshot after the other.

    It is kept, since memory that is new to a process is several times slower to write.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._block = np.empty(0, np.uint8)
        self._used_bytes = 0

    def clear(self, num_bytes: int) -> None:
        """Forget all copies; let there be room for ``num_bytes``, if that is within the limit."""
        size = num_bytes if self._limit_bytes is None else min(num_bytes, self._limit_bytes)
        self._used_bytes = 0
        if self._block.size != size:
            self._block = np.empty(size, np.uint8)  # takes memory as it is written

    def copy(self, content: np.ndarray) -> np.ndarray | None:
        """Return a copy of some bytes, None if there is no room for it."""
        stop = self._used_bytes + content.size
        if stop > self._block.size:
            return None
        copied = self._block[self._used_bytes : stop]
        np.copyto(copied, content)
        self._used_bytes = stop
        return copied


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
        room: Where they are copied to.
        copies_ahead: Whether the thread copies all tensors before it writes.
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
        room: CopyRoom | None = None,
        copies_ahead: bool = False,
    ) -> None:
        self._server = server
        self._disk = disk
        self._memory = memory or Dram()
        self._path = path
        self._is_background = is_background
        self._copies_ahead = copies_ahead
        self._room = room or CopyRoom()
        self._lock = threading.Condition()
        self._entries = {
            name: [
                _Entry(key, array.reshape(-1).view(np.uint8), array.dtype, offsets[key])
                for key, array in arrays.items()
                if key in offsets
            ]
            for name, arrays in tensors.items()
        }
        self._room.clear(sum(entry.content.size for entry in self._all()))
        self._urgent: list[_Entry] = []  # those that an update waits for
        self._copied_bytes = 0
        self._copying_s = 0.0
        self._is_over = False  # nothing more is read
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
            changing = [e for e in self._of(parameters) if not (e.is_written or e.is_copy)]
            waiting = [entry for entry in changing if not self._copy(entry)]
            self._copied_bytes += sum(entry.content.size for entry in changing if entry.is_copy)
            self._urgent += waiting
            self._lock.wait_for(lambda: self._is_over or all(e.is_written for e in waiting))
        self._copying_s += time.perf_counter() - start_s

    def _of(self, parameters: Collection[str]) -> Iterator[_Entry]:
        return (entry for name in parameters for entry in self._entries.get(name, ()))

    def _all(self) -> Iterator[_Entry]:
        return self._of(self._entries.keys())

    def _copy(self, entry: _Entry) -> bool:
        """Copy an entry, unless it was copied before; return whether there was room."""
        copied = None if entry.is_copy else self._room.copy(entry.content)
        if copied is not None:
            entry.content, entry.is_copy = copied, True
        return entry.is_copy

    def _run(self) -> None:
        try:
            self._copy_ahead()
            if self._is_background:
                with suppress(OSError):  # of this thread alone, on Linux
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
            part = self._write()
        except Exception as error:  # whatever it is, the report must say it
            part = Part(error_number=getattr(error, "errno", None) or errno.EIO)
        with self._lock:
            self._is_over = True
            self._lock.notify_all()
        with suppress(OSError):  # whoever waits for the report calls ``wait``, and misses it
            write_part(self._path, self._server, part, self._disk)

    def _copy_ahead(self) -> None:
        """Copy all tensors, with the priority of the training: an update may wait for a copy."""
        for entry in self._all() if self._copies_ahead else ():
            with self._lock:
                self._copy(entry)

    def _write(self) -> Part:
        began_ns = time.time_ns()
        crc32: dict[str, int] = {}
        not_finite: list[str] = []
        with self._disk.writing(self._path) as file:
            for entry in self._in_turn():
                crc32[entry.key], is_finite = self._write_one(file, entry)
                if not is_finite:
                    not_finite.append(entry.key)
        return Part(
            crc32=crc32,
            not_finite=tuple(not_finite),
            copied_bytes=self._copied_bytes,
            copying_s=self._copying_s,
            num_bytes=sum(entry.content.size for entry in self._all()),
            began_ns=began_ns,
            ended_ns=time.time_ns(),
        )

    def _in_turn(self) -> Iterator[_Entry]:
        """Yield every entry once, those first that an update waits for."""
        for entry in self._all():
            while self._urgent:
                urgent = self._urgent.pop()
                if not urgent.is_written:
                    yield urgent
            if not entry.is_written:
                yield entry

    def _write_one(self, file: OpenFile, entry: _Entry) -> tuple[int, bool]:
        """Write one tensor; return its checksum, and whether all its values are finite."""
        crc, is_finite, start = 0, True, 0
        while start < entry.content.size:
            content = entry.content
            chunk = content[start : start + _CHUNK_BYTES]
            file.write(chunk, entry.offset + start)
            next_crc = zlib.crc32(chunk.data, crc)
            chunk_is_finite = _all_finite(chunk.view(entry.dtype))
            with self._lock:
                if entry.content is not content:  # it may have changed, or moved, meanwhile
                    continue
                if not entry.is_copy:
                    self._memory.let_go(torch.from_numpy(chunk))
                crc, start = next_crc, start + chunk.size
                is_finite = is_finite and chunk_is_finite
                entry.is_written = start == content.size
                self._lock.notify_all()
        return crc, is_finite


def _all_finite(values: np.ndarray) -> bool:
    """Return whether there is no NaN or infinity; a sum shows it, unless the sum overflows."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(all="ignore"):
        total = float(values.sum())
    return bool(np.isfinite(total)) or bool(np.isfinite(values).all())
