"""Checkpoint files: ``checkpoint_<step>.mdl``, HDF5 (cerebras_pytorch 2.10, ``storage``).

One contiguous dataset per tensor, named by its dotted path:

    model.<parameter>                        fp32 master
    model.<tied name>                        link to the parameter that has this name, too
    model.<buffer>                           buffer; bfloat16 as float32
    optimizer.state.<parameter>.<state>      fp32 optimizer state
    sparsity.mask.<parameter>                mask of a sparse parameter, a bit for each element in
                                             int32 words, the lowest bit first

Tensors of a parameter with a mask may be *packed*: one dimension, the values of the elements that
the mask leaves. The attribute ``whole_shape`` of such a dataset is the shape of the whole tensor.

and, in attributes of the file,

    __version__               format of the file
    __waferstream_version__   version of the program that wrote it
    __spec__                  JSON: dtype and shape of every dataset, and the whole shape of a
                              packed one; written last: a file without it is incomplete
    __objects__               JSON: all states that are not tensors (global_step, schedulers, ...)

A *seal* follows the last byte that belongs to HDF5, whose libraries ignore it. It repeats the
attributes, and adds offset and CRC-32 of every tensor and the CRC-32 of all bytes between them
(``waferstream.checkpoint.seal``). A sealed file is read without HDF5, so its structure can mislead
nobody.

Files of format 1.0 have no seal; theirs is derived from their structure in a process with a
deadline (``waferstream.checkpoint.inspection``). Those of earlier versions have no buffers and
links. Files with packed tensors are of format 2.0 and end with a seal of its own, so that programs
that know format 1 alone refuse them by their format.
"""

from __future__ import annotations

from collections.abc import Mapping

MODEL = "model"
OPTIMIZER_STATE = "optimizer.state"

SPARSITY_MASK = "sparsity.mask"

CLUSTER_STATES: Mapping[str, str] = {
    "sparsity": SPARSITY_MASK,
    "model": MODEL,
    "optimizer": OPTIMIZER_STATE,
}
"""States whose tensors the weight servers hold, and the prefix of the keys of each.

In the order in which a server takes them: weights that are filled in are masked at once.
"""

FORMAT_VERSION = "1.1"
PACKED_VERSION = "2.0"
"""The format of files with packed tensors."""

UNSEALED_VERSION = "1.0"
"""The format of files without a seal."""

WHOLE_SHAPE_ATTRIBUTE = "whole_shape"
FORMAT_ATTRIBUTE = "__version__"
WRITER_ATTRIBUTE = "__waferstream_version__"
SPEC_ATTRIBUTE = "__spec__"
OBJECTS_ATTRIBUTE = "__objects__"


def parameter_of(name: str, state: str) -> str:
    """Return the parameter that a tensor of one of CLUSTER_STATES belongs to."""
    return name.rpartition(".")[0] if state == "optimizer" else name
