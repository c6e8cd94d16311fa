"""Checkpoint files that were damaged, or written by an earlier version."""

from collections.abc import Callable
from pathlib import Path

import h5py

from wsc.checkpoint import FORMAT_ATTRIBUTE, UNSEALED_VERSION


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
