"""Checkpoint files that were damaged, written by an earlier version, or have packed tensors."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from waferstream.checkpoint import FORMAT_ATTRIBUTE, UNSEALED_VERSION
from waferstream.checkpoint.packed import PackedSpec
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.program.program import TensorSpec

PACKED_PLACES = (3, 17, 40)
PACKED_VALUES = np.array([1.5, -2.0, 0.25], np.float32)
_WORDS = np.array([1 << 3 | 1 << 17, 1 << 8], np.int32)


def flip_in(path: Path, content: bytes) -> None:
    """Flip one bit of the first place in a file that has some content."""
    whole = bytearray(path.read_bytes())
    whole[whole.index(content) + len(content) // 2] ^= 8
    path.write_bytes(whole)


def unsealed(path: Path, change: Callable[[h5py.File], object] = lambda _: None) -> Path:
    """Turn a checkpoint into one of the format without a seal, and change it; return its path."""
    with h5py.File(path, "r+") as file:  # HDF5 cuts off what follows its own bytes
        file.attrs[FORMAT_ATTRIBUTE] = UNSEALED_VERSION
        change(file)
    return path


def packed_checkpoint(path: Path, words: np.ndarray = _WORDS) -> Path:
    """Write a 4 x 16 weight of which three elements are kept, and a dense bias; return its path."""
    contents = {
        PackedSpec("model.w", (3,), "float32", whole=(4, 16)): PACKED_VALUES,
        TensorSpec("sparsity.mask.w", (2,), "int32"): words,
        TensorSpec("model.b", (3,), "float32"): 2 * PACKED_VALUES,
    }
    offsets = reserve_tensors(path, list(contents))
    with path.open("r+b") as file:
        for spec, values in contents.items():
            file.seek(offsets[spec.name])
            file.write(values.tobytes())
    write_metadata(path, {"global_step": 7})
    return path
