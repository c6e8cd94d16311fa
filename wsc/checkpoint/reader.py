"""Read a checkpoint file lazily: opening reads the metadata, a tensor is read on access."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from wsc.checkpoint import (
    FORMAT_ATTRIBUTE,
    FORMAT_VERSION,
    OBJECTS_ATTRIBUTE,
    SPEC_ATTRIBUTE,
    WRITER_ATTRIBUTE,
)
from wsc.core.errors import CheckpointError, did_you_mean
from wsc.core.program import TensorSpec
from wsc.version import VERSION

_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError)
"""What HDF5 and the parsing of metadata raise on a damaged file."""


class Reader:
    """A complete checkpoint file; may be pickled and used in another process.

    ``tensors`` maps each key to its shape and dtype, ``objects`` each other state to its value.
    Every error is a CheckpointError that names the file. The file is open only while it is read;
    once it was replaced or written to, every read is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = self._stat()
        with self._open() as file:
            self._read_metadata(file.attrs)

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin with ``<prefix>.``, without the prefix."""
        start = f"{prefix}."
        return tuple(key.removeprefix(start) for key in self.tensors if key.startswith(start))

    def __getitem__(self, key: str) -> np.ndarray:
        """Read one tensor."""
        spec = self._known(key)
        out = np.empty(spec.shape, spec.dtype)
        self.read_into({key: out})
        return out

    def read_into(self, targets: Mapping[str, np.ndarray]) -> None:
        """Read tensors into contiguous arrays, whose dtypes and shapes they must have."""
        for key, out in targets.items():
            self._check(key, self._known(key), out)
        self._check_unchanged()
        with self._open() as file:
            for key, out in targets.items():
                if key not in file:
                    raise self._error(
                        f"tensor {key!r} is listed but missing", "listed-tensor-missing"
                    )
                if out.size:
                    file[key].read_direct(out)

    def require_version(self) -> None:
        """Refuse a file of another major or minor version (``checkpoint.strict_version``)."""
        if _major_minor(self.writer_version) != _major_minor(VERSION):
            raise self._error(
                "the checkpoint was written by another version of WaferStream",
                "checkpoint-of-other-version",
                value=f"found {self.writer_version}, expected {VERSION}",
                remedy="convert it, or set checkpoint.strict_version to False",
            )

    def _read_metadata(self, attributes: Mapping[str, str]) -> None:
        if SPEC_ATTRIBUTE not in attributes:
            raise self._error("the checkpoint is incomplete", "checkpoint-incomplete")
        found = attributes[FORMAT_ATTRIBUTE]
        if found.split(".")[0] != FORMAT_VERSION.split(".")[0]:
            raise self._error(
                "the checkpoint has another format",
                "checkpoint-of-other-format",
                value=found,
                rule=f"this program reads format {FORMAT_VERSION}",
            )
        self.writer_version = attributes[WRITER_ATTRIBUTE]
        self.objects: dict[str, Any] = json.loads(attributes[OBJECTS_ATTRIBUTE])
        self.tensors = {
            key: TensorSpec(key, tuple(shape), np.dtype(dtype).name)
            for key, (dtype, shape) in json.loads(attributes[SPEC_ATTRIBUTE]).items()
        }

    def _known(self, key: str) -> TensorSpec:
        if key not in self.tensors:
            raise self._error(
                f"the checkpoint holds no tensor {key!r}",
                "no-such-tensor",
                remedy=did_you_mean(key, self.tensors),
            )
        return self.tensors[key]

    def _check(self, key: str, found: TensorSpec, out: np.ndarray) -> None:
        if found.shape != out.shape or found.dtype != out.dtype.name:
            raise self._error(
                f"tensor {key!r} has another dtype or shape than in the model",
                "tensor-mismatch",
                value=f"found {found.dtype} {found.shape}, expected {out.dtype.name} {out.shape}",
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
            stat = os.stat(self.path)
        except OSError as error:
            raise self._error(
                "the checkpoint cannot be read", "checkpoint-not-readable", value=error.strerror
            ) from error
        return stat.st_mtime_ns, stat.st_size

    @contextmanager
    def _open(self) -> Iterator[h5py.File]:
        try:
            with h5py.File(self.path, "r") as file:
                yield file
        except _DAMAGE as error:
            raise self._error(
                "the checkpoint is damaged, or not a checkpoint",
                "checkpoint-damaged",
                value=error,
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
