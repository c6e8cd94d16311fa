"""What kind of weights a path holds, told without torch by the first bytes of a file."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from waferstream.checkpoint import WRITER_ATTRIBUTE
from waferstream.checkpoint.inspection import DAMAGE
from waferstream.core.errors import CheckpointError
from waferstream.core.extras import LazyPackage

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

_VENDOR_ATTRIBUTE = "__cstorch_version__"

_CONVERT = "waferstream checkpoint convert {} --model llama --src-fmt hf --tgt-fmt cs-current"
_REMEDIES = {
    Kind.GGUF: "convert the folder of transformers that it was made from; waferstream serve reads "
    "a GGUF as it is",
    Kind.FOLDER: f"name a file of it; of a folder of transformers: {_CONVERT.format('FOLDER')} "
    "--config FOLDER/config.json",
    Kind.SAFETENSORS: f"{_CONVERT.format('FILE')} --config config.json",
}


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


def check_kind(path: Path, kind: Kind) -> None:
    """Raise CheckpointError for what must be converted before it is a checkpoint."""
    if kind in (Kind.FOLDER, Kind.GGUF, Kind.SAFETENSORS):
        raise other_kind(path, kind)


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
