"""Flash: masters and optimizer state in files, of which a stated number of bytes is in DRAM.

The tensors lie in memory-mapped files without a name, so that nothing is left of a process that was
killed, and runs can share a folder. Their space is reserved when they are allocated, so a full disk
is found then. Whole tensors are the unit: one that is used counts as resident from then on, and the
oldest ones leave. What leaves is unmapped at once, and a thread writes it and drops it from the
page cache; ``resident_bytes`` bounds both together. Values never depend on any of it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import torch

from memoryx.memory.flash_spec import FlashSpec
from memoryx.memory.memory import laid_out, views_at
from memoryx.optim.rule import Shape, rule_named, state_bytes
from waferstream.core.errors import (
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ConfigError,
)
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import MASTER_BYTES, TensorSpec
from waferstream.core.units import KIB, format_bytes

_READ_BYTES = 128 * KIB
"""Linux begins to read at most ``read_ahead_kb`` of the disk (128 by default) in one call."""

_WRITE_AND_WAIT = 7  # sync_file_range(2): WAIT_BEFORE, WRITE and WAIT_AFTER
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WHERE = "runtime.flash.path"


def check_bound(
    spec: FlashSpec, parameters: Mapping[str, TensorSpec], optimizer: OptimizerSpec | None = None
) -> None:
    """Refuse a bound that the largest parameter exceeds while it is updated or copied.

    Raises:
        ConfigError: ``resident_bytes`` is too small.
    """
    hyper = {n: g.hyper for g in optimizer.groups for n in g.names} if optimizer else {}
    rule = partial(state_bytes, rule_named(optimizer.rule)) if optimizer else None
    for name, parameter in parameters.items():
        master_bytes = parameter.num_elements * MASTER_BYTES
        more_bytes = rule(parameter.shape, hyper[name]) if rule and name in hyper else 0
        least_bytes = master_bytes + max(master_bytes, more_bytes)
        if spec.resident_bytes < least_bytes:
            raise ConfigError(
                "runtime.flash.resident_bytes must hold each parameter with its optimizer state",
                code="flash-bound-too-small",
                where="runtime.flash.resident_bytes",
                value=spec.resident_bytes,
                rule=f"{name} needs {least_bytes} bytes ({format_bytes(least_bytes)})",
                remedy=f"state at least {least_bytes}, several times as much for speed",
            )


@dataclass(eq=False)
class _File:
    """A mapped file without a name; ``address`` is that of its first byte."""

    descriptor: int
    mapping: mmap.mmap  # stays while a tensor or an extent of it does
    address: int
    num_tensors: int  # that were not discarded


@dataclass(frozen=True)
class _Extent:
    """The pages of one tensor."""

    file: _File
    start: int
    num_bytes: int


class FlashMemory:
    """The memory of one store in files. One thread uses it, except for ``let_go``."""

    is_bounded = True

    def __init__(self, spec: FlashSpec) -> None:
        self._spec = spec
        self.copy_limit_bytes = spec.resident_bytes // 8
        # What is mapped stays below this, so that the rest can be written meanwhile.
        self._most_mapped_bytes = spec.resident_bytes * 3 // 4
        self._files: tuple[_File, ...] = ()
        self._resident: OrderedDict[int, _Extent] = OrderedDict()  # by address, oldest first
        self._resident_bytes = 0
        self._num_used = 0  # the newest extents that must stay
        self._leaving_bytes = 0
        self._left = threading.Condition()
        self._failure: OSError | None = None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flash")

    @property
    def num_bytes(self) -> int:
        """The bytes of all files."""
        return sum(len(file.mapping) for file in self._files)

    def allocate(self, shapes: Sequence[Shape]) -> list[torch.Tensor]:
        """Return tensors of zeros in a new file.

        Raises:
            ConfigError: The folder is missing, or must not be written.
            ApplianceResourceExhausted: The disk is full.
        """
        starts, total_bytes = laid_out(shapes, mmap.PAGESIZE)
        if not total_bytes:
            return [torch.zeros(shape) for shape in shapes]
        descriptor = self._reserve(total_bytes)
        mapping = mmap.mmap(descriptor, total_bytes)
        content = np.frombuffer(mapping, np.float32)
        file = _File(descriptor, mapping, content.ctypes.data, sum(map(bool, map(prod, shapes))))
        weakref.finalize(file, os.close, descriptor)
        self._files = (*self._files, file)
        return views_at(torch.from_numpy(content), starts, shapes)

    def use(self, tensors: Iterable[torch.Tensor]) -> None:
        """Make room in DRAM for whole tensors; waits until the writer is behind by little enough.

        Raises:
            ApplianceRuntimeServerError: The disk has failed.
        """
        self._num_used = self._admit(tensors)
        self._evict(self._num_used)
        with self._left:
            self._left.wait_for(lambda: self._free_bytes >= 0 or not self._leaving_bytes)
        if self._failure is not None:
            raise ApplianceRuntimeServerError(
                "weights could not be written to flash",
                code="flash-failed",
                where=str(self._spec.path),
                value=self._failure.strerror,
                remedy="check the disk, then continue from the last checkpoint",
            ) from self._failure

    def expect(self, tensors: Iterable[torch.Tensor]) -> None:
        """Begin to read whole tensors into the page cache, as far as there is room."""
        absent = [t for t in tensors if t.nbytes and t.data_ptr() not in self._resident]
        num_bytes = sum(tensor.nbytes for tensor in absent)
        if num_bytes > self._spec.resident_bytes - self._most_mapped_bytes:
            return
        if self._leaving_bytes + self._most_mapped_bytes + num_bytes > self._spec.resident_bytes:
            return
        count = self._admit(absent)
        self._evict(self._num_used + count)
        self._num_used += count
        for tensor in absent:
            extent = self._resident[tensor.data_ptr()]
            for start in range(extent.start, extent.start + extent.num_bytes, _READ_BYTES):
                os.posix_fadvise(extent.file.descriptor, start, _READ_BYTES, os.POSIX_FADV_WILLNEED)

    def let_go(self, content: torch.Tensor) -> None:
        """Unmap the pages of a part of a tensor; the resident ones come back when they are used."""
        extent = self._extent(content)
        _unmap(extent)
        _drop(extent)  # except for what is not written yet

    def discard(self, tensors: Iterable[torch.Tensor]) -> None:
        """Free files of which every tensor was discarded, once nobody reads them any more."""
        for tensor in tensors:
            if not tensor.nbytes:
                continue
            file = self._extent(tensor).file
            file.num_tensors -= 1
            gone = self._resident.pop(tensor.data_ptr(), None)
            self._resident_bytes -= 0 if gone is None else gone.num_bytes
        self._num_used = 0
        self._files = tuple(file for file in self._files if file.num_tensors)

    def _reserve(self, num_bytes: int) -> int:
        """Return the descriptor of a new file without a name that has so many bytes on the disk."""
        try:
            with tempfile.TemporaryFile(dir=self._spec.path, buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
                return os.dup(file.fileno())
        except OSError as error:
            if error.errno not in _FULL:
                raise ConfigError(
                    "runtime.flash.path must be a folder in which files can be made",
                    code="flash-path-not-usable",
                    where=_WHERE,
                    value=f"{self._spec.path}: {error.strerror}",
                ) from error
            raise ApplianceResourceExhausted(
                "masters and optimizer state do not fit the disk of runtime.flash.path",
                code="flash-path-full",
                where=_WHERE,
                value=f"{self._spec.path}: {error.strerror}",
                rule=f"{format_bytes(num_bytes)} more must be free for this weight server",
                remedy="name a folder on a larger disk, or raise the limit of its user",
            ) from error

    @property
    def _free_bytes(self) -> int:
        return self._spec.resident_bytes - self._resident_bytes - self._leaving_bytes

    def _admit(self, tensors: Iterable[torch.Tensor]) -> int:
        """Count tensors as resident and newest; return how many there are."""
        extents = {tensor.data_ptr(): self._extent(tensor) for tensor in tensors if tensor.nbytes}
        for address, extent in extents.items():
            if address not in self._resident:
                self._resident_bytes += extent.num_bytes
            self._resident[address] = extent
            self._resident.move_to_end(address)
        return len(extents)

    def _evict(self, num_kept: int) -> None:
        """Let the oldest extents leave until the rest is small enough, except for the newest."""
        while self._resident_bytes > self._most_mapped_bytes and len(self._resident) > num_kept:
            _, extent = self._resident.popitem(last=False)
            self._resident_bytes -= extent.num_bytes
            _unmap(extent)
            with self._left:
                self._leaving_bytes += extent.num_bytes
            self._writer.submit(self._write_behind, extent)

    def _write_behind(self, extent: _Extent) -> None:
        """Write the changed pages of an extent, and drop them from the page cache."""
        try:
            _write(extent)
            _drop(extent)
        except OSError as error:
            self._failure = error  # its pages stay in the page cache
        with self._left:
            self._leaving_bytes -= extent.num_bytes
            self._left.notify_all()

    def _extent(self, content: torch.Tensor) -> _Extent:
        """Return the whole pages of a tensor or of a part of one."""
        address, page = content.data_ptr(), mmap.PAGESIZE
        for file in self._files:
            if file.address <= address < file.address + len(file.mapping):
                first = (address - file.address) // page * page
                stop = -(-(address - file.address + content.nbytes) // page) * page
                return _Extent(file, first, stop - first)
        raise ValueError("the tensor is not in flash")


_LIBC = ctypes.CDLL(None, use_errno=True)
_MADVISE = _LIBC.madvise
_MADVISE.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_SYNC_FILE_RANGE = _LIBC.sync_file_range
_SYNC_FILE_RANGE.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def _unmap(extent: _Extent) -> None:
    """Take pages out of this process; changes stay in the page cache."""
    address = extent.file.address + extent.start
    _check(_MADVISE(address, extent.num_bytes, mmap.MADV_DONTNEED))


def _write(extent: _Extent) -> None:
    """Write changed pages from the page cache to the disk, and wait for it."""
    file = extent.file.descriptor
    _check(_SYNC_FILE_RANGE(file, extent.start, extent.num_bytes, _WRITE_AND_WAIT))


def _drop(extent: _Extent) -> None:
    """Take pages out of the page cache that are unchanged and that no process has mapped."""
    file = extent.file.descriptor
    os.posix_fadvise(file, extent.start, extent.num_bytes, os.POSIX_FADV_DONTNEED)


def _check(result: int) -> None:
    """Raise the error of a system call that has failed."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
