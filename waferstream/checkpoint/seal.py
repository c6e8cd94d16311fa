"""The seal of a checkpoint file: what it holds, where, and the checksums of all of it.

    bytes of HDF5 | manifest (JSON) | CRC-32 of HDF5's own bytes | of the manifest | lengths | magic

CRC-32 finds every flipped bit and every burst of up to 32 bits, and misses one of 2^32 other
changes. ``zlib.crc32`` takes 1.5 GB/s on a core of 2019, more than twice as much as SHA-256, and
is faster than the disks that checkpoints go to, so no further library is needed. The checksums find
damage; they are no signature.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from waferstream.checkpoint.packed import mask_key, num_words
from waferstream.checkpoint.parts import Part
from waferstream.core.units import MIB

_MAGIC = b"wsc-seal"
_PACKED_MAGIC = b"wsc-sea2"
"""Of files with packed tensors: a program that does not know these finds no seal and refuses them
by their format."""
_TAIL = struct.Struct("<IIQQ8s")  # CRC of HDF5's bytes, CRC of the rest, two lengths, magic
_MOST_MANIFEST_BYTES = 256 * MIB
_CHUNK_BYTES = 4 * MIB

Dtype = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


class SealError(ValueError):
    """A seal that is damaged, or does not belong to its file."""


class _Plain(BaseModel):
    """Base of what a seal holds: JSON, read without any conversion."""

    # "constants": objects may hold any number
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants"
    )


class Extent(_Plain):
    """The bytes of one tensor in the file; ``crc32`` is None where nobody has computed it.

    ``whole`` is the shape of the whole tensor if this one is packed.
    """

    dtype: Dtype
    shape: tuple[NonNegativeInt, ...] = Field(max_length=32)
    offset: NonNegativeInt
    crc32: NonNegativeInt | None = None
    whole: tuple[NonNegativeInt, ...] | None = Field(default=None, max_length=32)

    @property
    def num_bytes(self) -> int:
        """The size of the tensor by its shape and dtype, not by the file."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class Manifest(_Plain):
    """The content of a checkpoint file.

    ``not_finite`` names the masters and optimizer states that hold NaN or infinity.
    """

    format: str
    writer: str
    objects: dict[str, Any]
    tensors: dict[str, Extent]
    not_finite: tuple[str, ...] = ()

    def with_parts(self, parts: Iterable[Part]) -> Manifest:
        """Return the manifest with the checksums that the servers have reported."""
        parts = list(parts)
        known = {key: crc for part in parts for key, crc in part.crc32.items()}
        tensors = {
            key: extent.model_copy(update={"crc32": known.get(key, extent.crc32)})
            for key, extent in self.tensors.items()
        }
        not_finite = tuple(sorted(key for part in parts for key in part.not_finite))
        return self.model_copy(update={"tensors": tensors, "not_finite": not_finite})

    @property
    def has_packed(self) -> bool:
        """Whether a tensor is packed."""
        return any(extent.whole is not None for extent in self.tensors.values())

    def check_packed(self) -> None:
        """Raise SealError unless every packed tensor has a mask of its size."""
        for key, extent in self.tensors.items():
            if extent.whole is None:
                continue
            mask = self.tensors.get(mask_key(key) or "")
            found = None if mask is None else (mask.dtype, mask.shape)
            if len(extent.shape) != 1 or found != ("int32", (num_words(extent.whole),)):
                raise SealError(f"packed tensor {key!r} has no mask of its size")

    def check_fits(self, num_bytes: int) -> None:
        """Raise SealError unless every tensor lies in the first ``num_bytes`` of its file."""
        for key, extent in self.tensors.items():
            if extent.offset + extent.num_bytes > num_bytes:
                raise SealError(f"tensor {key!r} ends behind the end of the file")


def append_seal(file: io.FileIO, manifest: Manifest) -> None:
    """Append the seal to a complete HDF5 file, opened for reading and writing."""
    size = file.seek(0, os.SEEK_END)
    text = manifest.model_dump_json(exclude_defaults=True).encode()
    own = _crc_outside(file, manifest.tensors, size)
    file.seek(size)
    file.write(text)
    head = struct.pack("<IQQ", own, size, len(text))
    magic = _PACKED_MAGIC if manifest.has_packed else _MAGIC
    file.write(_TAIL.pack(own, zlib.crc32(head, zlib.crc32(text)), size, len(text), magic))


def read_seal(file: io.FileIO) -> Manifest | None:
    """Check the seal of an open file and return its manifest; None if there is no seal.

    Tensors are not read.

    Raises:
        SealError: The seal, or a byte of the file that belongs to no tensor, is damaged.
    """
    end = file.seek(0, os.SEEK_END)
    if end < _TAIL.size:
        return None
    file.seek(end - _TAIL.size)
    own, crc, size, length, magic = _TAIL.unpack(file.read(_TAIL.size))
    if magic not in (_MAGIC, _PACKED_MAGIC):
        return None
    if length > _MOST_MANIFEST_BYTES or size + length + _TAIL.size != end:
        raise SealError("the lengths in the seal do not match the size of the file")
    file.seek(size)
    text = file.read(length)
    if zlib.crc32(struct.pack("<IQQ", own, size, length), zlib.crc32(text)) != crc:
        raise SealError("the seal does not match its checksum")
    manifest = parse_manifest(text)
    manifest.check_fits(size)
    if _crc_outside(file, manifest.tensors, size) != own:
        raise SealError("bytes between the tensors do not match their checksum")
    return manifest


def parse_manifest(text: bytes) -> Manifest:
    """Return the manifest in a JSON text; SealError if it is malformed."""
    try:
        manifest = Manifest.model_validate_json(text)
    except (ValidationError, RecursionError) as error:
        raise SealError("the manifest is malformed") from error
    manifest.check_packed()
    return manifest


def read_extent(file: io.FileIO, extent: Extent, out: np.ndarray) -> None:
    """Read a tensor into a contiguous array of its shape and dtype, and check it.

    Raises:
        SealError: The bytes do not match their checksum, or are no values of the dtype.
    """
    flat = out.reshape(-1).view(np.uint8)
    file.seek(extent.offset)
    crc = 0
    for start in range(0, flat.size, _CHUNK_BYTES):
        chunk = flat[start : start + _CHUNK_BYTES].data
        if file.readinto(chunk) != len(chunk):
            raise SealError("the file is too short")
        crc = zlib.crc32(chunk, crc)
    _compare(extent, crc)
    if extent.dtype == "bool" and flat.size and flat.max() > 1:
        raise SealError("a boolean is neither 0 nor 1")


def check_extent(file: io.FileIO, extent: Extent) -> None:
    """Raise SealError if the bytes of a tensor do not match its checksum, where it has one."""
    if extent.crc32 is not None:
        _compare(extent, _crc_of(file, extent.offset, extent.offset + extent.num_bytes))


def _compare(extent: Extent, crc: int) -> None:
    if extent.crc32 is not None and crc != extent.crc32:
        raise SealError(f"its checksum is {crc:08x}, it was written with {extent.crc32:08x}")


def with_checksums(file: io.FileIO, manifest: Manifest) -> Manifest:
    """Return a manifest with the checksum of every tensor, as the file holds it."""
    tensors = {
        key: extent
        if extent.crc32 is not None
        else extent.model_copy(
            update={"crc32": _crc_of(file, extent.offset, extent.offset + extent.num_bytes)}
        )
        for key, extent in manifest.tensors.items()
    }
    return manifest.model_copy(update={"tensors": tensors})


def _crc_of(file: io.FileIO, start: int, stop: int, crc: int = 0) -> int:
    """Return the CRC-32 of the bytes from ``start`` to ``stop``, which continues ``crc``."""
    file.seek(start)
    while start < stop:
        chunk = file.read(min(stop - start, _CHUNK_BYTES))
        if not chunk:
            raise SealError("the file is too short")
        crc = zlib.crc32(chunk, crc)
        start += len(chunk)
    return crc


def _crc_outside(file: io.FileIO, tensors: Mapping[str, Extent], size: int) -> int:
    """Return the CRC-32 of the first ``size`` bytes without those of the tensors."""
    crc = 0
    for start, stop in _gaps(tensors, size):
        crc = _crc_of(file, start, stop, crc)
    return crc


def _gaps(tensors: Mapping[str, Extent], size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between the tensors, in order."""
    start = 0
    for offset, length in sorted({(e.offset, e.num_bytes) for e in tensors.values()}):
        if length:
            yield start, max(start, offset)
            start = max(start, offset + length)
    yield start, size
