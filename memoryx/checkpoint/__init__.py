"""Checkpoint files: ``checkpoint_<step>.mdl``, HDF5 (cluster_interface.md, section 3.9).

One dataset per tensor, named by its dotted path:

    model.<parameter>                        fp32 master
    optimizer.state.<parameter>.<state>      fp32 optimizer state

and, in attributes of the file,

    __version__               format of the file
    __waferstream_version__   who wrote it
    __spec__                  JSON: dtype and shape of every dataset; written last, so that a file
                              without it was never finished
    __objects__               JSON: all states that are no tensors (global_step, schedulers, ...)

Weight servers append their tensors to the same file one after the other; none ever holds another's.
"""

from memoryx.checkpoint.layout import CLUSTER_STATES, MODEL, OPTIMIZER_STATE
from memoryx.checkpoint.reader import Reader
from memoryx.checkpoint.writer import append_tensors, cannot_write, write_metadata

__all__ = [
    "CLUSTER_STATES",
    "MODEL",
    "OPTIMIZER_STATE",
    "Reader",
    "append_tensors",
    "cannot_write",
    "write_metadata",
]
