"""Checkpoint files: ``checkpoint_<step>.mdl``, HDF5 (cluster_interface.md, section 3.9).

One dataset per tensor, named by its dotted path:

    model.<parameter>                        fp32 master
    model.<tied name>                        link to the parameter that has this name, too
    model.<buffer>                           buffer; bfloat16 as float32
    optimizer.state.<parameter>.<state>      fp32 optimizer state

and, in attributes of the file,

    __version__               format of the file
    __waferstream_version__   version of the program that wrote it
    __spec__                  JSON: dtype and shape of every dataset; written last, so that a file
                              without it is incomplete
    __objects__               JSON: all states that are not tensors (global_step, schedulers, ...)

The user's process begins the file with buffers and links. Weight servers append their tensors to it
one after the other; none ever reads another's. Files of earlier versions have no buffers and links.
"""

from __future__ import annotations

from collections.abc import Mapping

MODEL = "model"
OPTIMIZER_STATE = "optimizer.state"

CLUSTER_STATES: Mapping[str, str] = {"model": MODEL, "optimizer": OPTIMIZER_STATE}
"""States whose tensors the weight servers hold, and the prefix of the keys of each."""

FORMAT_VERSION = "1.0"

FORMAT_ATTRIBUTE = "__version__"
WRITER_ATTRIBUTE = "__waferstream_version__"
SPEC_ATTRIBUTE = "__spec__"
OBJECTS_ATTRIBUTE = "__objects__"
