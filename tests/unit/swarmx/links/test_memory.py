"""Memory for payloads: reuse, growth, and errors after the owner has ended."""

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from swarmx.links import memory
from swarmx.links.memory import MemoryArena, SharedArena, SharedPayload, SharedSlab, place_of
from tests.support.errors import raises
from tests.support.host.processes import descriptors
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
)
from waferstream.core.units import MIB


@pytest.fixture
def arena() -> SharedArena:
    return SharedArena()


def handle_of(slab: SharedSlab) -> SharedPayload:
    """Return the payload that a reader gets."""
    place = place_of(slab)
    assert place is not None
    return place


def as_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget this process' mappings, as a process that never saw the block."""
    monkeypatch.setattr(memory, "_mappings", {})


def test_shared_payload_is_read_in_place(
    arena: SharedArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payload's handle leads to the same bytes, not to a copy of them."""
    slab = arena.allocate(1000)
    mine = slab.view(torch.uint8)
    handle = handle_of(slab)
    as_stranger(monkeypatch)
    theirs = handle.view(torch.uint8)
    assert theirs.data_ptr() != mine.data_ptr()
    mine.fill_(7)
    assert bool((theirs == 7).all())


def test_freed_slab_serves_slabs_of_other_sizes(arena: SharedArena) -> None:
    """Memory whose pages exist already is preferred over new memory, whatever the size."""
    first = arena.allocate(5000)
    place = first.view(torch.uint8).data_ptr()
    kept = arena.allocate(64)
    first.free()
    smaller = arena.allocate(4000)
    assert smaller.view(torch.uint8).data_ptr() == place
    assert arena.allocate(5000).view(torch.uint8).data_ptr() > kept.view(torch.uint8).data_ptr()
    smaller.free()
    assert arena.allocate(5000).view(torch.uint8).data_ptr() == place


def test_mixed_sizes_take_what_is_in_use_at_a_time(arena: SharedArena) -> None:
    """A stream of buckets, of which two are held, takes two of the largest and no more."""
    sizes = [1000 * k for k in range(64, 0, -1)]
    places = set()
    held = [arena.allocate(sizes[0])]
    for size in sizes[1:]:
        held.append(arena.allocate(size))
        places.add(handle_of(held[-1]).offset + size)
        held.pop(0).free()
    assert max(places) <= 2 * 64064


def test_slabs_taken_back_serve_again(arena: SharedArena) -> None:
    """All of them, freed or not, each once: an aborted job leaves no memory in use."""
    before = {handle_of(arena.allocate(size)) for size in (100, 100, 300)}
    arena.allocate(100).free()
    arena.take_back_all()
    assert {handle_of(arena.allocate(size)) for size in (100, 100, 300)} == before
    arena.allocate(100).free()


def test_shared_arena_grows_beyond_a_block(arena: SharedArena) -> None:
    """Slabs larger than a block, and more of them than one block holds, are all apart."""
    slabs = [arena.allocate(size) for size in (40 * MIB, 40 * MIB, 70 * MIB, 64)]
    ranges = sorted(
        (start, start + slab.num_bytes)
        for slab in slabs
        for start in [slab.view(torch.uint8).data_ptr()]
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_shared_memory_has_no_name(arena: SharedArena) -> None:
    """The kernel knows the memory by its mappings alone, so it cannot outlive them."""
    place = arena.allocate(1000).view(torch.uint8).data_ptr()
    mapping = next(
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        for start, end in [line.split()[0].split("-")]
        if int(start, 16) <= place < int(end, 16)
    )
    assert mapping.endswith("/memfd:waferstream (deleted)")


def test_payload_of_a_closed_arena_is_refused(arena: SharedArena) -> None:
    """Reading a payload whose owner has closed its arena is an error."""
    handle = handle_of(arena.allocate(64))
    arena.close()
    with raises(ApplianceRuntimeServerError, "shared-memory-gone"):
        handle.view(torch.uint8)


def test_payload_of_a_reused_descriptor_is_refused(arena: SharedArena) -> None:
    """Another file under the same number in the same process is not taken for the block."""
    handle = handle_of(arena.allocate(64))
    arena.close()
    impostor = os.memfd_create("another")
    try:
        os.dup2(impostor, handle.block.descriptor)
        with raises(ApplianceRuntimeServerError, "shared-memory-gone"):
            handle.view(torch.uint8)
    finally:
        for descriptor in {impostor, handle.block.descriptor}:
            os.close(descriptor)


@pytest.mark.parametrize(("offset", "num_bytes"), [(0, 2**62), (2**63, 8), (64 * MIB - 4, 8)])
def test_payload_outside_its_block_is_refused(
    arena: SharedArena, offset: int, num_bytes: int
) -> None:
    """A range that a peer states is checked before it is read."""
    block = handle_of(arena.allocate(64)).block
    with raises(ApplianceCorruptionError, "message-damaged"):
        SharedPayload(block, offset, num_bytes).view(torch.uint8)


def test_view_outlives_its_arena(arena: SharedArena) -> None:
    """A view that was taken stays readable after the arena closed."""
    slab = arena.allocate(64)
    view = slab.view(torch.uint8).fill_(3)
    arena.close()
    assert bool((view == 3).all())


def test_view_must_fit_the_dtype(arena: SharedArena) -> None:
    """A view must cover all bytes with whole elements."""
    with pytest.raises(RuntimeError, match="divisible"):
        arena.allocate(65).view(torch.float32)


def test_freed_slab_cannot_be_read() -> None:
    """Reading a payload after its credit was returned is an error."""
    slab = MemoryArena().allocate(8)
    slab.free()
    with pytest.raises(RuntimeError, match="after it was freed"):
        slab.view(torch.uint8)


def test_no_shared_memory_is_an_error(arena: SharedArena) -> None:
    """A block that the kernel refuses leaves no descriptor, and a later one may work."""
    before = descriptors()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 * MIB, limits[1]))
    try:
        with raises(ApplianceResourceExhausted, "no-shared-memory"):
            arena.allocate(100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert descriptors() <= before
    arena.allocate(100).free()
    arena.close()
