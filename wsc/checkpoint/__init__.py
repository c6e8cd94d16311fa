"""Checkpoint files: ``checkpoint_<step>.mdl``, HDF5 (cluster_interface.md, section 3.9).

One dataset per tensor, named by its dotted path:

    model.<parameter>                        fp32 master
    optimizer.state.<parameter>.<state>      fp32 optimizer state

and, in attributes of the file,

    __version__               format of the file
    __waferstream_version__   version of the program that wrote it
    __spec__                  JSON: dtype and shape of every dataset; written last, so that a file
                              without it is incomplete
    __objects__               JSON: all states that are not tensors (global_step, schedulers, ...)

Weight servers append their tensors to the same file one after the other; none ever reads another's.
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
