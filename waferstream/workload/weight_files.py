"""Files of weights that other programs write.

Checkpoints of the vendor's package are HDF5: a dataset for each tensor, named by its dotted path,
bfloat16 as int16 (cerebras_pytorch 2.10, ``storage``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.inspection import DAMAGE, damaged
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.errors import CheckpointError
from waferstream.core.extras import LazyPackage
from waferstream.host.files import replacing
from waferstream.workload.hugging_face import Weights, read_hf
from waferstream.workload.weight_kinds import Kind, kind_of, other_kind

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyPackage("h5py", "train")

_START, _METADATA = f"{MODEL}.", ".__METADATA__"
_LZ4 = 32004
"""Number of the compression that the vendor's package uses, registered with the HDF Group."""


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


def write_checkpoint(path: Path, weights: Weights, objects: Mapping[str, Any]) -> None:
    """Write a checkpoint of ours with the weights of a model; bfloat16 becomes float32."""
    arrays = {name: _array(weight.detach().cpu().contiguous()) for name, weight in weights.items()}
    with replacing(path, durable=True) as partial:
        append_tensors(partial, MODEL, arrays)
        write_metadata(partial, objects)


def _array(weight: torch.Tensor) -> Any:
    return (weight.float() if weight.dtype == torch.bfloat16 else weight).numpy()


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
