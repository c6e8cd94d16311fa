"""Where the kernels of a CS node compute: the processor, or a GPU beside it."""

from typing import Literal

DeviceName = Literal["cpu", "cuda"]
"""``runtime.device`` of cluster.yaml: where torch computes."""
