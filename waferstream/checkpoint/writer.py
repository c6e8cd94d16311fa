"""Write a checkpoint file: tensors, or space that others fill with them; the metadata come last.

These functions are not atomic; callers write to a partial file
(``waferstream.host.files.replacing``) that nobody reads before it is complete.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from waferstream.checkpoint import (
    FORMAT_ATTRIBUTE,
    FORMAT_VERSION,
    OBJECTS_ATTRIBUTE,
    PACKED_VERSION,
    SPEC_ATTRIBUTE,
    WHOLE_SHAPE_ATTRIBUTE,
    WRITER_ATTRIBUTE,
)
from waferstream.checkpoint.inspection import datasets, inspect, manifest_of
from waferstream.checkpoint.packed import PackedSpec
from waferstream.checkpoint.parts import Part
from waferstream.checkpoint.seal import Manifest, append_seal, with_checksums
from waferstream.core.errors import CheckpointError
from waferstream.core.extras import LazyPackage
from waferstream.core.program.program import TensorSpec
from waferstream.core.system_errors import remedy_of
from waferstream.core.units import KIB
from waferstream.host.files import final_path
from waferstream.version import VERSION

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyPackage("h5py", "train")

# Upper bounds of what HDF5 writes besides tensor bytes: header and index entry of one object
# (names are below 1 KiB), and the tables of the whole file.
_OBJECT_BYTES = 4 * KIB
_FILE_BYTES = 64 * KIB


def append_tensors(path: Path, prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Add one dataset ``<prefix>.<name>`` per tensor; creates the file if there is none.

    Raises:
        CheckpointError: A key exists already, or the file cannot be written.
    """
    num_bytes = sum(array.nbytes + _OBJECT_BYTES for array in tensors.values())
    with _appending(path, num_bytes) as file:
        for name, array in tensors.items():
            key = f"{prefix}.{name}"
            _check_absent(path, file, key)
            file.create_dataset(key, data=array)


def reserve_tensors(path: Path, specs: Sequence[TensorSpec]) -> dict[str, int]:
    """Add one dataset without values for each key; creates the file if there is none.

    Whoever has the values writes them at the offsets that are returned, in native byte order. Of a
    PackedSpec these are the values that its mask leaves, which must be in the same file.

    Raises:
        CheckpointError: A key exists already, or the file cannot be written.
    """
    with _appending(path, sum(spec.num_bytes + _OBJECT_BYTES for spec in specs)) as file:
        offsets = {}
        for spec in specs:
            _check_absent(path, file, spec.name)
            offsets[spec.name] = _create_without_values(file, spec)
        return offsets


def _create_without_values(file: h5py.File, spec: TensorSpec) -> int:
    """Add a dataset with space in the file, which HDF5 does not fill; return its offset.

    ``create_dataset`` allots space to a scalar only when its value is written.
    """
    space = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space.set_obj_track_times(False)  # equal states make equal files
    link = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    link.set_create_intermediate_group(True)
    link.set_char_encoding(h5py.h5t.CSET_UTF8)
    kind = h5py.h5t.py_create(np.dtype(spec.dtype), logical=True)
    extent = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    created = h5py.h5d.create(file.id, spec.name.encode(), kind, extent, space, link)
    if isinstance(spec, PackedSpec):
        h5py.Dataset(created).attrs[WHOLE_SHAPE_ATTRIBUTE] = np.array(spec.whole, np.int64)
    return created.get_offset() or 0


def _check_absent(path: Path, file: h5py.File, key: str) -> None:
    if key in file:
        raise CheckpointError(
            f"tensor {key!r} is written twice",
            code="tensor-written-twice",
            where=str(final_path(path)),
            rule="one weight server owns a parameter",
        )


def append_links(path: Path, prefix: str, links: Mapping[str, str]) -> None:
    """Let ``<prefix>.<name>`` stand for another tensor of the file, which may be written later.

    Raises:
        CheckpointError: The file cannot be written.
    """
    with _appending(path, len(links) * _OBJECT_BYTES) as file:
        for name, target in links.items():
            file[f"{prefix}.{name}"] = h5py.SoftLink(f"/{prefix}.{target}")


def write_metadata(path: Path, objects: Mapping[str, Any], parts: Iterable[Part] = ()) -> None:
    """Complete the file: record which tensors it holds, and all states that are not tensors.

    Args:
        path: The file, whose tensors have all been written.
        objects: State names (``global_step``, ``schedulers``, ``dataloader``, ...) with values of
            JSON types.
        parts: Reports about tensors of ``reserve_tensors``; the checksums of all others are
            computed here.

    Raises:
        CheckpointError: A value is of another type, or the file cannot be written.
    """
    objects_json = _to_json(path, objects)
    with _appending(path, 0) as file:
        spec = _spec(file)
    spec_json = json.dumps(spec)
    is_packed = any(whole for _, _, *whole in spec.values())
    with _appending(path, len(objects_json.encode()) + len(spec_json.encode())) as file:
        file.attrs[FORMAT_ATTRIBUTE] = PACKED_VERSION if is_packed else FORMAT_VERSION
        file.attrs[WRITER_ATTRIBUTE] = VERSION
        file.attrs[OBJECTS_ATTRIBUTE] = objects_json
        file.attrs[SPEC_ATTRIBUTE] = spec_json
        manifest = manifest_of(file, path)
    _seal(path, manifest.with_parts(parts))


def reseal(path: Path) -> None:
    """Append checksums to a file that has none, or that another program has changed.

    Raises:
        CheckpointError: The file is damaged, or cannot be written.
    """
    _seal(path, inspect(path, may_lack_seal=True))


def _seal(path: Path, manifest: Manifest) -> None:
    """Append the seal to a file whose metadata are complete."""
    try:
        with io.FileIO(path, "r+") as raw:
            append_seal(raw, with_checksums(raw, manifest))
    except OSError as error:
        raise _cannot_write(path, error) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a CheckpointError; it names the file, or ``path``."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: Exception) -> CheckpointError:
    """Return the CheckpointError for an error of the operating system or of HDF5.

    It names the file of the error, ``path`` if that has none.
    """
    number = getattr(error, "errno", None)
    named = getattr(error, "filename", None) or path
    return CheckpointError(
        "the checkpoint cannot be written",
        code="checkpoint-not-writable",
        where=str(final_path(Path(named))),
        value=os.strerror(number) if number else error,
        remedy=remedy_of(error) if isinstance(error, OSError) else None,
    )


@contextmanager
def _appending(path: Path, num_bytes: int) -> Iterator[h5py.File]:
    """Open the file to append at most ``num_bytes`` of tensors or text."""
    try:
        if not path.exists():
            _create(path)
        _reserve(path, num_bytes + _FILE_BYTES)
        with h5py.File(path, "r+") as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise _cannot_write(path, error) from error


def _create(path: Path) -> None:
    """Create an empty HDF5 file, built in memory for the reason given in ``_reserve``."""
    image = io.BytesIO()
    h5py.File(image, "w").close()
    path.write_bytes(image.getvalue())


def _reserve(path: Path, num_bytes: int) -> None:
    """Reserve disk space before HDF5 writes; HDF5 truncates the rest when it closes the file.

    HDF5 cannot close a file that it cannot write: it aborts the process. When the space is
    reserved beforehand, a full disk is an ordinary OSError.
    """
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, num_bytes)


def _spec(file: h5py.File) -> dict[str, list[Any]]:
    """Return dtype and shape of every dataset, and the whole shape of a packed one."""
    return {key: _described(file[key]) for key in datasets(file)}


def _described(dataset: h5py.Dataset) -> list[Any]:
    whole = dataset.attrs.get(WHOLE_SHAPE_ATTRIBUTE)
    return [dataset.dtype.name, dataset.shape, *([] if whole is None else [whole.tolist()])]


def _to_json(path: Path, objects: Mapping[str, Any]) -> str:
    for name, value in objects.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"state {name!r} cannot be written to a checkpoint",
                code="state-not-json",
                where=str(final_path(path)),
                value=error,
                rule="mappings, lists, strings, numbers, booleans and null",
            ) from error
    return json.dumps(dict(objects))
