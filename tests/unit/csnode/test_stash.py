"""Values that leave a node and come back: their bits, their strides, and memory that they share."""

from __future__ import annotations

import torch

from csnode.stash import pack, unpack
from tests.support.roles.arenas import StrictArena


def round_trip(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return values after a trip whose slab is freed."""
    arena = StrictArena()
    slab, packed = pack(values, arena)
    found = unpack(packed, slab)
    slab.free()
    assert not arena.live
    return found


def test_views_of_one_memory_share_it_again() -> None:
    """With their places, strides and dtypes; the memory travels once."""
    whole = torch.arange(24, dtype=torch.float32).view(4, 6)
    values = {
        "transposed": whole.t(),
        "part": whole[1:3, ::2],
        "bits": whole.view(torch.int32),
        "other": torch.ones(3, dtype=torch.bfloat16),
    }
    arena = StrictArena()
    slab, packed = pack(values, arena)
    assert slab.num_bytes == 24 * 4 + 3 * 2
    found = unpack(packed, slab)
    for name, value in values.items():
        assert torch.equal(found[name], value)
        assert found[name].stride() == value.stride()
        assert found[name].storage_offset() == value.storage_offset()
    found["transposed"][0, 0] = -1.0
    assert found["bits"].view(torch.float32)[0, 0] == -1.0
    assert whole[0, 0] == 0.0


def test_lazy_conjugates_and_negatives_keep_their_values() -> None:
    """They are flags of a view, not bytes."""
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    values = {"conjugate": numbers.conj(), "negative": numbers.conj().imag}
    found = round_trip(values)
    assert all(torch.equal(found[name], value) for name, value in values.items())
    assert found["conjugate"].is_conj()
    assert found["negative"].is_neg()


def test_nothing_travels_as_a_byte() -> None:
    """Of a micro-batch of another size, whose memory is cut otherwise."""
    slab, packed = pack({}, StrictArena())
    assert (slab.num_bytes, unpack(packed, slab)) == (1, {})


def test_values_begin_at_addresses_of_their_own() -> None:
    """As tensors of kernels do: bits of products may depend on it."""
    found = round_trip({"odd": torch.ones(3), "next": torch.ones(5)})
    assert all(value.data_ptr() % 64 == 0 for value in found.values())
