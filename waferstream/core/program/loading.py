"""How the samples of a program are loaded: a statement of the input pipeline, read by timing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LoaderKind = Literal["hdf5", "csv", "npz", "other"]


@dataclass(frozen=True)
class Loading:
    """Describe the processes and files that load a job's samples.

    The keys and the meaning of zero are those of the vendor's data loader configuration.
    """

    kind: LoaderKind = "other"
    num_workers: int = 0
    """Loader processes of one input worker; 0 loads in the worker itself."""
    num_workers_per_csx: int = 0
    """Input workers of one system; 0 takes the machine's number."""
    num_files: int = 1
    """Files that hold the samples."""


UNKNOWN_LOADING = Loading()
"""The loading of a data loader that states nothing."""
