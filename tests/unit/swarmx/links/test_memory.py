"""The in-process link: what it checks that others cannot."""

import pytest
import torch

from swarmx.links.memory import MemoryArena, MemoryPost
from wsc.core.errors import ApplianceDeadlockError
from wsc.core.messages import Envelope, WeightsReleased


def test_freed_slab_cannot_be_read() -> None:
    """A room that reads a payload whose credit it gave back is caught, not served old bytes."""
    slab = MemoryArena().allocate(8)
    slab.free()
    with pytest.raises(RuntimeError, match="after it was freed"):
        slab.view(torch.uint8)


def test_pending_counts_the_mailbox() -> None:
    """The loop around the rooms can see who has something to do."""
    post = MemoryPost()
    a, b = post.open("a"), post.open("b")
    a.send(Envelope("a", "b", WeightsReleased(1, 0, 0)))
    assert (a.pending, b.pending) == (0, 1)
    b.receive(0)
    assert b.pending == 0


def test_empty_mailbox_fails_without_waiting() -> None:
    """Rooms of one process take turns, so nothing can arrive while one waits."""
    endpoint = MemoryPost().open("a")
    with pytest.raises(ApplianceDeadlockError, match="within 3600 s"):
        endpoint.receive(3600)


def test_room_names_are_unique() -> None:
    """Two rooms of one name would share a mailbox."""
    post = MemoryPost()
    post.open("a")
    with pytest.raises(ValueError, match="open already"):
        post.open("a")
