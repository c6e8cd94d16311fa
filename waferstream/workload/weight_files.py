"""Files of weights that other programs write, and what kind each is.

Kinds are told by the first bytes of a file. Checkpoints of the vendor's package are HDF5: a dataset
for each tensor, named by its dotted path, bfloat16 as int16 (cerebras_pytorch 2.10, ``storage``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from waferstream.checkpoint import MODEL, WRITER_ATTRIBUTE
from waferstream.checkpoint.inspection import DAMAGE, damaged
from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import CheckpointError
from waferstream.core.extras import LazyPackage
from waferstream.workload.hugging_face import Weights, read_hf

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyPackage("h5py", "train")


class Kind(Enum):
    """What a path holds."""

    OURS = "a checkpoint"
    VENDOR = "a checkpoint of the vendor's package"
    PICKLE = "weights that torch.save wrote"
    SAFETENSORS = "weights in safetensors"
    GGUF = "a GGUF, of which the weights may be quantized"
    FOLDER = "a folder"
    OTHER = "something else"


_ZIP, _GGUF, _HDF5 = b"PK\x03\x04", b"GGUF", b"\x89HDF\r\n\x1a\n"
_MOST_HEADER_BYTES = 100_000_000
"""Of safetensors: its own limit."""

_START, _METADATA = f"{MODEL}.", ".__METADATA__"
_VENDOR_ATTRIBUTE = "__cstorch_version__"
_LZ4 = 32004
"""Number of the compression that the vendor's package uses, registered with the HDF Group."""


def kind_of(path: Path) -> Kind:
    """Return the kind of what is at a path; a file that cannot be read is something else."""
    if path.is_dir():
        return Kind.FOLDER
    if not path.is_file():  # a pipe would be waited for
        return Kind.OTHER
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError:
        return Kind.OTHER
    if start.startswith(_HDF5):
        return Kind.VENDOR if _is_vendors(path) else Kind.OURS
    if start.startswith((_ZIP, _GGUF)):
        return Kind.PICKLE if start.startswith(_ZIP) else Kind.GGUF
    is_header = start[8:] == b"{" and int.from_bytes(start[:8], "little") < _MOST_HEADER_BYTES
    return Kind.SAFETENSORS if is_header else Kind.OTHER


def _is_vendors(path: Path) -> bool:
    """Return whether a file of HDF5 was written by the vendor's package."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            return _VENDOR_ATTRIBUTE in file.attrs and WRITER_ATTRIBUTE not in file.attrs
    except DAMAGE:
        return False


def read_weights(path: Path) -> Weights:
    """Read the weights of a model from a file of any kind, or a folder of transformers.

    Raises:
        CheckpointError: The path holds no weights, or they cannot be read.
    """
    match kind_of(path):
        case Kind.OURS:
            reader = Reader(path)
            names = reader.names(MODEL)
            return {name: torch.from_numpy(reader[f"{MODEL}.{name}"]) for name in names}
        case Kind.VENDOR:
            return _read_vendors(path)
        case Kind.PICKLE:
            return _read_pickle(path)
        case Kind.GGUF:
            raise other_kind(path, Kind.GGUF)
        case _:
            return read_hf(path)


def other_kind(path: Path, kind: Kind) -> CheckpointError:
    """Return the error for something that is given where a checkpoint is meant."""
    return CheckpointError(
        "a checkpoint must be given",
        code="checkpoint-of-other-kind",
        where=str(path),
        value=f"{path.name} is {kind.value}",
        rule="a .mdl file of a run, of the vendor's package, or of waferstream checkpoint convert",
        remedy=_REMEDIES.get(kind),
    )


_CONVERT = "waferstream checkpoint convert {} --model llama --src-fmt hf --tgt-fmt cs-current"
_REMEDIES = {
    Kind.GGUF: "convert the folder of transformers that it was made from; waferstream serve reads "
    "a GGUF as it is",
    Kind.FOLDER: f"name a file of it; of a folder of transformers: {_CONVERT.format('FOLDER')} "
    "--config FOLDER/config.json",
    Kind.SAFETENSORS: f"{_CONVERT.format('FILE')} --config config.json",
}


def _read_pickle(path: Path) -> Weights:
    """Read a file of torch.save: weights by name, alone or as the state ``model``."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise damaged(path, error) from error
    found = loaded.get(MODEL, loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(found, dict) or not all(
        isinstance(each, torch.Tensor) for each in found.values()
    ):
        raise damaged(path, "it holds other things than tensors by name")
    return found


def _read_vendors(path: Path) -> Weights:
    """Read the state ``model`` of a checkpoint of the vendor's package."""
    if find_spec("hdf5plugin") is not None:
        import_module("hdf5plugin")  # which registers its compressions
    try:
        with h5py.File(path, "r", locking=False) as file:
            keys = {key: key for key in file if key.startswith(_START)} | dict(_links(file))
            return {
                key.removeprefix(_START): _tensor(path, file, target)
                for key, target in keys.items()
            }
    except DAMAGE as error:
        raise damaged(path, error) from error


def _links(file: h5py.File) -> Iterator[tuple[str, str]]:
    """Yield further keys of tensors, which are in the metadata alone, with the first of each."""
    for name, text in file.attrs.items():
        if name.startswith(_START) and name.endswith(_METADATA) and "__LINKED__" in str(text):
            yield name.removesuffix(_METADATA), json.loads(text)[name]["key"]


def _tensor(path: Path, file: h5py.File, key: str) -> torch.Tensor:
    """Read one tensor."""
    if isinstance(file.get(key, getlink=True), h5py.ExternalLink):
        raise ValueError(f"{key!r} is a link to another file")
    dataset = file[key]
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{key!r} lies outside of the file")
    filters = dataset.id.get_create_plist()
    numbers = [filters.get_filter(i)[0] for i in range(filters.get_nfilters())]
    if _LZ4 in numbers and not h5py.h5z.filter_avail(_LZ4):
        raise CheckpointError(
            "the package hdf5plugin must be installed",
            code="hdf5plugin-missing",
            where=str(path),
            rule="the vendor's package compresses checkpoints with LZ4, which HDF5 alone lacks",
            remedy="pip install hdf5plugin",
        )
    values = torch.from_numpy(np.ascontiguousarray(dataset[...]))
    kind = str(np.ravel(dataset.attrs.get("dtypes", [b""]))[0])
    is_half = values.dtype is torch.int16 and "bfloat16" in kind
    return values.view(torch.bfloat16) if is_half else values
