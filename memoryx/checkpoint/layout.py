"""Names inside a checkpoint file, shared by writer and reader."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

MODEL = "model"
OPTIMIZER_STATE = "optimizer.state"

CLUSTER_STATES: Mapping[str, str] = {"model": MODEL, "optimizer": OPTIMIZER_STATE}
"""The states whose tensors the weight servers hold, and what the keys of each begin with."""

FORMAT_VERSION = "1.0"
WAFERSTREAM_VERSION = version("waferstream")

FORMAT_ATTRIBUTE = "__version__"
WRITER_ATTRIBUTE = "__waferstream_version__"
SPEC_ATTRIBUTE = "__spec__"
OBJECTS_ATTRIBUTE = "__objects__"
