"""Memory of one process: what it checks that shared memory cannot."""

import pytest
import torch

from swarmx.links.memory import MemoryArena


def test_freed_slab_cannot_be_read() -> None:
    """A role that reads a payload whose credit it gave back is caught, not served old bytes."""
    slab = MemoryArena().allocate(8)
    slab.free()
    with pytest.raises(RuntimeError, match="after it was freed"):
        slab.view(torch.uint8)
