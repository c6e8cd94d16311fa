"""Derive the manifest of a checkpoint file from its HDF5 structure.

The writer needs it for the seal. For files without a seal, which anybody may have made, the reader
calls ``inspect``: HDF5's library can hang or crash on a hostile file, so that runs in a process
with a deadline and a limit on its memory, and only plain data comes back.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waferstream.checkpoint import (
    FORMAT_ATTRIBUTE,
    FORMAT_VERSION,
    OBJECTS_ATTRIBUTE,
    PACKED_VERSION,
    SPEC_ATTRIBUTE,
    UNSEALED_VERSION,
    WRITER_ATTRIBUTE,
)
from waferstream.checkpoint.seal import Extent, Manifest, SealError, parse_manifest
from waferstream.core.errors import CheckpointError
from waferstream.core.extras import LazyPackage
from waferstream.core.units import GIB

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyPackage("h5py", "train")

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_DEADLINE_S = 60.0
_MOST_MEMORY_BYTES = 4 * GIB
_MOST_DEPTH = 64  # groups in groups
DAMAGE = (
    OSError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)
"""What HDF5 and the parsing of metadata raise on a damaged file."""


def inspect(path: Path, *, may_lack_seal: bool = False) -> Manifest:
    """Return the manifest of a file without a seal; no tensor has a checksum.

    Args:
        path: The file.
        may_lack_seal: Whether files of a format that has seals are inspected, too.

    Raises:
        CheckpointError: The file is damaged, incomplete, of another format, or lacks its seal.
    """
    with path.open("rb") as file:
        if file.read(len(_SIGNATURE)) != _SIGNATURE:
            raise damaged(path, "not an HDF5 file")
    search_path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, str(path), *(["any"] if may_lack_seal else [])],
            env={**os.environ, "PYTHONPATH": search_path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise damaged(path, f"HDF5 did not read it within {_DEADLINE_S:g} s") from error
    if done.returncode != 0:
        raise damaged(path, f"HDF5 failed on it with status {done.returncode}")
    kind, _, text = done.stdout.partition(b"\n")
    if kind == b"error":
        raise CheckpointError(**json.loads(text))
    try:
        manifest = parse_manifest(text)
        manifest.check_fits(path.stat().st_size)
    except SealError as error:
        raise damaged(path, error) from error
    return manifest


def damaged(path: Path, value: object) -> CheckpointError:
    """Return the error for a file that cannot be understood."""
    return CheckpointError(
        "the checkpoint is damaged, or not a checkpoint",
        code="checkpoint-damaged",
        where=str(path),
        value=value,
        remedy="name another checkpoint, or copy this one again",
    )


def manifest_of(file: h5py.File, where: Path) -> Manifest:
    """Return the manifest of an open, complete file, as its metadata state it.

    Raises:
        CheckpointError: The metadata are missing, malformed, or do not match the datasets.
    """
    attributes = file.attrs
    if SPEC_ATTRIBUTE not in attributes:
        raise CheckpointError(
            "the checkpoint is incomplete", code="checkpoint-incomplete", where=str(where)
        )
    found = str(attributes[FORMAT_ATTRIBUTE])
    check_format(found, where)
    spec = json.loads(attributes[SPEC_ATTRIBUTE])
    return Manifest(
        format=found,
        writer=attributes[WRITER_ATTRIBUTE],
        objects=json.loads(attributes[OBJECTS_ATTRIBUTE]),
        tensors={key: _extent(file, key, *spec[key]) for key in spec},
    )


def check_format(found: str, where: Path) -> None:
    """Raise CheckpointError if this program does not know the format of a file."""
    known = (FORMAT_VERSION, PACKED_VERSION)
    if found.split(".", maxsplit=1)[0] not in {version.split(".")[0] for version in known}:
        raise CheckpointError(
            "the checkpoint has another format",
            code="checkpoint-of-other-format",
            where=str(where),
            value=found,
            rule=f"this program reads formats {' and '.join(known)}",
        )


def datasets(group: h5py.Group, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the key of every dataset, links included, which ``visititems`` leaves out."""
    if depth > _MOST_DEPTH:
        raise ValueError("groups are nested too deeply")
    for name in group:
        item = group[name]
        if isinstance(item, h5py.Dataset):
            yield f"{prefix}{name}"
        else:  # a name with slashes makes groups
            yield from datasets(item, f"{prefix}{name}/", depth + 1)


def _extent(
    file: h5py.File, key: str, dtype: str, shape: list[int], whole: list[int] | None = None
) -> Extent:
    """Return where a dataset lies; ValueError unless it is what the metadata say."""
    _check_links(file, key)
    if key not in file:
        raise KeyError(f"tensor {key!r} is listed but missing")
    dataset = file[key]
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"{key!r} is no dataset")
    if dataset.is_virtual or dataset.external or dataset.chunks is not None:
        raise ValueError(f"{key!r} is virtual, chunked or stored outside of the file")
    if (dataset.dtype.name, dataset.shape) != (dtype, tuple(shape)) or not dataset.dtype.isnative:
        raise ValueError(f"{key!r} is {dataset.dtype} {dataset.shape}, not {dtype} {shape}")
    made = {"dtype": dtype, "shape": tuple(shape), "whole": whole and tuple(whole)}
    if not dataset.size:
        return Extent.model_validate({**made, "offset": 0})
    offset, stored = dataset.id.get_offset(), dataset.id.get_storage_size()
    if offset is None or stored != dataset.nbytes:
        raise ValueError(f"{key!r} is not stored in one piece")
    return Extent.model_validate({**made, "offset": offset})


def _check_links(file: h5py.File, key: str) -> None:
    """Raise ValueError if a part of a path leads out of the file."""
    parts = key.split("/")
    for end in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:end]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise ValueError(f"{key!r} is a link to another file")
        if isinstance(link, h5py.SoftLink) and isinstance(
            file.get(link.path, getlink=True), h5py.SoftLink | h5py.ExternalLink
        ):
            raise ValueError(f"{key!r} is a link to a link")


def _inspect_here(path: Path, may_lack_seal: bool = False) -> Manifest:
    """Inspect a file without a seal in this process."""
    try:
        with h5py.File(path, "r") as file:
            manifest = manifest_of(file, path)
    except DAMAGE as error:
        raise damaged(path, error) from error
    if manifest.format != UNSEALED_VERSION and not may_lack_seal:
        raise CheckpointError(
            "the checkpoint has lost its checksums",
            code="checkpoint-damaged",
            where=str(path),
            rule=f"a file of format {manifest.format} ends with a seal",
            remedy="load another checkpoint; if a program has changed this one on purpose, "
            "waferstream checkpoint seal writes a copy with checksums",
        )
    return manifest


def _fields(error: CheckpointError) -> dict[str, Any]:
    names = ("what", "code", "where", "value", "rule", "remedy")
    return {name: getattr(error, name) for name in names}


def main() -> None:
    """Print the manifest of a file, or the error that it has."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    try:
        manifest = _inspect_here(Path(sys.argv[1]), may_lack_seal="any" in sys.argv[2:])
        print(f"manifest\n{manifest.model_dump_json()}")
    except CheckpointError as error:
        print(f"error\n{json.dumps(_fields(error))}")


if __name__ == "__main__":
    main()
