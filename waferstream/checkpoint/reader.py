"""Read a checkpoint file lazily: opening reads the metadata, a tensor is read on access.

Every byte that is returned has been checked: what belongs to no tensor when the file is opened, a
tensor when it is read.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from waferstream.checkpoint.inspection import check_format, damaged, inspect
from waferstream.checkpoint.packed import mask_key, unpack_into
from waferstream.checkpoint.seal import SealError, check_extent, read_extent, read_seal
from waferstream.core.errors import CheckpointError, did_you_mean
from waferstream.core.program.program import TensorSpec
from waferstream.host.files import open_regular
from waferstream.version import VERSION


class Reader:
    """A complete checkpoint file; may be pickled and used in another process.

    ``tensors`` maps each key to shape and dtype of the whole tensor, ``objects`` every other state
    to its value.
    Every error is a CheckpointError that names the file. The file is open only while it is read;
    once it was replaced or written to, every read is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = self._stat()
        with self._open() as file:
            manifest = read_seal(file)
        self.has_checksums = manifest is not None
        if manifest is None:
            manifest = inspect(path)
        check_format(manifest.format, path)
        self.writer_version = manifest.writer
        self.objects: dict[str, Any] = manifest.objects
        self.not_finite = manifest.not_finite
        """Masters and optimizer states that hold NaN or infinity."""
        self._extents = manifest.tensors
        self.tensors = {
            key: TensorSpec(
                key, extent.shape if extent.whole is None else extent.whole, extent.dtype
            )
            for key, extent in manifest.tensors.items()
        }

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin with ``<prefix>.``, without the prefix."""
        start = f"{prefix}."
        return tuple(key.removeprefix(start) for key in self.tensors if key.startswith(start))

    def __getitem__(self, key: str) -> np.ndarray:
        """Read one tensor."""
        spec = self._known(key)
        try:
            out = np.empty(spec.shape, spec.dtype)
        except (MemoryError, ValueError) as error:
            raise self._error(
                f"tensor {key!r} does not fit the memory", "tensor-too-large", value=spec.shape
            ) from error
        self.read_into({key: out})
        return out

    def read_into(
        self,
        targets: Mapping[str, np.ndarray],
        before_each: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Read tensors into contiguous arrays, whose dtypes and shapes they must have.

        ``before_each`` is called with the key of each tensor before it is read. When a tensor is
        damaged, arrays have been written to already.
        """
        self.check(TensorSpec(key, out.shape, out.dtype.name) for key, out in targets.items())
        self._check_unchanged()
        with self._open() as file:
            for key, out in targets.items():
                before_each(key)
                with self._damage_to(key):
                    self._read(file, key, out)

    def stored_bytes(self, key: str) -> int:
        """Return the bytes that a tensor takes in the file."""
        return self._extents[key].num_bytes

    def check(self, expected: Iterable[TensorSpec]) -> None:
        """Refuse the file unless it has these tensors, with these shapes and dtypes."""
        for spec in expected:
            self._check(self._known(spec.name), spec)

    def verify(self) -> None:
        """Check every tensor, as far as the file has checksums."""
        self._check_unchanged()
        with self._open() as file:
            for key, extent in self._extents.items():
                with self._damage_to(key):
                    check_extent(file, extent)

    def require_version(self) -> None:
        """Refuse a file of another major or minor version (``checkpoint.strict_version``)."""
        if _major_minor(self.writer_version) != _major_minor(VERSION):
            raise self._error(
                "the checkpoint was written by another version of WaferStream",
                "checkpoint-of-other-version",
                value=f"found {self.writer_version}, expected {VERSION}",
                remedy="convert it, or set checkpoint.strict_version to False",
            )

    def _known(self, key: str) -> TensorSpec:
        if key not in self.tensors:
            raise self._error(
                f"the checkpoint holds no tensor {key!r}",
                "no-such-tensor",
                remedy=did_you_mean(key, self.tensors),
            )
        return self.tensors[key]

    def _read(self, file: io.FileIO, key: str, out: np.ndarray) -> None:
        """Read one tensor, whole; SealError if its bytes, or those of its mask, are damaged."""
        extent = self._extents[key]
        if extent.whole is None:
            read_extent(file, extent, out)
            return
        mask = self._extents[mask_key(key) or ""]
        values, words = np.empty(extent.shape, extent.dtype), np.empty(mask.shape, mask.dtype)
        read_extent(file, extent, values)
        read_extent(file, mask, words)
        try:
            unpack_into(out, values, words)
        except ValueError as error:
            raise SealError(str(error)) from error

    def _check(self, found: TensorSpec, expected: TensorSpec) -> None:
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise self._error(
                f"tensor {found.name!r} has another dtype or shape than in the model",
                "tensor-mismatch",
                value=f"found {found.dtype} {found.shape}, "
                f"expected {expected.dtype} {expected.shape}",
                remedy="load a checkpoint of the same model",
            )

    def _check_unchanged(self) -> None:
        if self._stat() != self._identity:
            raise self._error(
                "the checkpoint changed after it was opened",
                "checkpoint-changed",
                remedy="open it again",
            )

    def _stat(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise self._error(
                "the checkpoint cannot be read", "checkpoint-not-readable", value=error.strerror
            ) from error
        if not stat.S_ISREG(found.st_mode):
            raise damaged(self.path, "not a file")
        return found.st_mtime_ns, found.st_size

    @contextmanager
    def _open(self) -> Iterator[io.FileIO]:
        try:
            with io.FileIO(self.path, opener=open_regular) as file:
                yield file
        except (OSError, SealError) as error:
            raise damaged(self.path, error) from error

    @contextmanager
    def _damage_to(self, key: str) -> Iterator[None]:
        """Convert a SealError to a CheckpointError that names a tensor."""
        try:
            yield
        except SealError as error:
            raise self._error(
                f"tensor {key!r} of the checkpoint is damaged",
                "tensor-damaged",
                value=error,
                remedy="load another checkpoint",
            ) from error

    def _error(
        self,
        what: str,
        code: str,
        value: object = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> CheckpointError:
        return CheckpointError(
            what, code=code, where=str(self.path), value=value, rule=rule, remedy=remedy
        )


def _major_minor(version: str) -> list[str]:
    return version.split(".")[:2]
